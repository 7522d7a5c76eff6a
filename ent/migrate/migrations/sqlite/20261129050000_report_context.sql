-- +goose Up
-- add columns to table: "reports"
ALTER TABLE `reports` ADD COLUMN `parent_id` integer NOT NULL DEFAULT (0);
ALTER TABLE `reports` ADD COLUMN `root_id` integer NOT NULL DEFAULT (0);

-- +goose Down
-- reverse: add columns to table: "reports"
ALTER TABLE `reports` DROP COLUMN `root_id`;
ALTER TABLE `reports` DROP COLUMN `parent_id`;
