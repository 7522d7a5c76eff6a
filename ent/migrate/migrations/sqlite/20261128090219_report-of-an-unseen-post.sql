-- +goose Up
-- modify "reports" table
ALTER TABLE `reports` ADD COLUMN `unseen` bool NOT NULL DEFAULT (false);

-- +goose Down
-- reverse: modify "reports" table
ALTER TABLE `reports` DROP COLUMN `unseen`;
