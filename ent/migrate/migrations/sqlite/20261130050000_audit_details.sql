-- +goose Up
-- add column "details" to table: "audit_entries"
ALTER TABLE `audit_entries` ADD COLUMN `details` json NULL;

-- +goose Down
-- reverse: add column "details" to table: "audit_entries"
ALTER TABLE `audit_entries` DROP COLUMN `details`;
