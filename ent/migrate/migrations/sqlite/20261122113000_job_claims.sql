-- +goose Up
-- add the columns "claim" and "restart" to table: "jobs"
ALTER TABLE `jobs` ADD COLUMN `claim` integer NOT NULL DEFAULT (0);
ALTER TABLE `jobs` ADD COLUMN `restart` bool NOT NULL DEFAULT (false);

-- +goose Down
-- reverse: add the columns "claim" and "restart" to table: "jobs"
ALTER TABLE `jobs` DROP COLUMN `restart`;
ALTER TABLE `jobs` DROP COLUMN `claim`;
