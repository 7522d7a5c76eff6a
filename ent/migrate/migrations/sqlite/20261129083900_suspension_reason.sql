-- +goose Up
-- add column "reason" to table: "hidden_users"
ALTER TABLE `hidden_users` ADD COLUMN `reason` text NOT NULL DEFAULT ('');

-- +goose Down
-- reverse: add column "reason" to table: "hidden_users"
ALTER TABLE `hidden_users` DROP COLUMN `reason`;
