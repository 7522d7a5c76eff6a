-- +goose Up
-- add column "sizes" to table: "processes"
ALTER TABLE `processes` ADD COLUMN `sizes` json NULL;
-- add column "wanted_sizes" to table: "processes"
ALTER TABLE `processes` ADD COLUMN `wanted_sizes` json NULL;

-- +goose Down
-- reverse: add column "wanted_sizes" to table: "processes"
ALTER TABLE `processes` DROP COLUMN `wanted_sizes`;
-- reverse: add column "sizes" to table: "processes"
ALTER TABLE `processes` DROP COLUMN `sizes`;
