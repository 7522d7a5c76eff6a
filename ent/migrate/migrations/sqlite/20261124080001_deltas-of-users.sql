-- +goose Up
-- a database of before the first release may have it
-- create "user_delta" table
CREATE TABLE IF NOT EXISTS `user_delta` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `followers` integer NOT NULL DEFAULT 0, `following` integer NOT NULL DEFAULT 0, `user_id` integer NOT NULL, CONSTRAINT `user_delta_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "userdelta_user_id" to table: "user_delta"
CREATE INDEX IF NOT EXISTS `userdelta_user_id` ON `user_delta` (`user_id`);

-- +goose Down
-- reverse: create index "userdelta_user_id" to table: "user_delta"
DROP INDEX `userdelta_user_id`;
-- reverse: create "user_delta" table
DROP TABLE `user_delta`;
