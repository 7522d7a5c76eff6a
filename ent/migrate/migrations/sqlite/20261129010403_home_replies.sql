-- +goose Up
-- add columns to table: "users"
ALTER TABLE `users` ADD COLUMN `home_replies` text NOT NULL DEFAULT ('FOLLOWED');

-- +goose Down
-- reverse: add columns to table: "users"
ALTER TABLE `users` DROP COLUMN `home_replies`;
