-- +goose Up
-- add column "suspended_until" to table: "hidden_users"
ALTER TABLE `hidden_users` ADD COLUMN `suspended_until` datetime NULL;

-- +goose Down
-- reverse: add column "suspended_until" to table: "hidden_users"
ALTER TABLE `hidden_users` DROP COLUMN `suspended_until`;
