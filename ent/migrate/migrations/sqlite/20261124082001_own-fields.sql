-- +goose Up
-- add column "avatar_url" to table: "users"
ALTER TABLE `users` ADD COLUMN `avatar_url` text NOT NULL DEFAULT ('');
-- add column "links" to table: "users"
ALTER TABLE `users` ADD COLUMN `links` text NOT NULL DEFAULT ('');
-- create "user_data" table
CREATE TABLE `user_data` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `data` text NOT NULL, `user_id` integer NOT NULL, CONSTRAINT `user_data_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "userdata_user_id" to table: "user_data"
CREATE UNIQUE INDEX `userdata_user_id` ON `user_data` (`user_id`);

-- +goose Down
-- reverse: create index "userdata_user_id" to table: "user_data"
DROP INDEX `userdata_user_id`;
-- reverse: create "user_data" table
DROP TABLE `user_data`;
-- reverse: add column "links" to table: "users"
ALTER TABLE `users` DROP COLUMN `links`;
-- reverse: add column "avatar_url" to table: "users"
ALTER TABLE `users` DROP COLUMN `avatar_url`;
