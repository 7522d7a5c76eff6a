-- +goose Up
-- add column "key_id" to table: "audit_entries"
ALTER TABLE `audit_entries` ADD COLUMN `key_id` integer NOT NULL DEFAULT (0);

-- +goose Down
-- reverse: add column "key_id" to table: "audit_entries"
ALTER TABLE `audit_entries` DROP COLUMN `key_id`;
