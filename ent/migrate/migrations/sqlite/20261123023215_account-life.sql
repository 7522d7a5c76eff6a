-- +goose Up
-- add column "user_agent" to table: "sessions"
ALTER TABLE `sessions` ADD COLUMN `user_agent` text NOT NULL DEFAULT '';
-- add column "hidden" to table: "users"
ALTER TABLE `users` ADD COLUMN `hidden` bool NOT NULL DEFAULT false;
-- create "hidden_users" table
CREATE TABLE `hidden_users` (`id` integer NOT NULL, `state` text NOT NULL, `due_at` datetime NOT NULL, PRIMARY KEY (`id`));
-- create index "hiddenuser_due_at" to table: "hidden_users"
CREATE INDEX `hiddenuser_due_at` ON `hidden_users` (`due_at`);

-- +goose Down
-- reverse: create index "hiddenuser_due_at" to table: "hidden_users"
DROP INDEX `hiddenuser_due_at`;
-- reverse: create "hidden_users" table
DROP TABLE `hidden_users`;
-- reverse: add column "hidden" to table: "users"
ALTER TABLE `users` DROP COLUMN `hidden`;
-- reverse: add column "user_agent" to table: "sessions"
ALTER TABLE `sessions` DROP COLUMN `user_agent`;
