-- +goose Up
-- add columns to table: "post_delta"
ALTER TABLE `post_delta` ADD COLUMN `replies` integer NOT NULL DEFAULT (0);
ALTER TABLE `post_delta` ADD COLUMN `reposts` integer NOT NULL DEFAULT (0);
ALTER TABLE `post_delta` ADD COLUMN `quotes` integer NOT NULL DEFAULT (0);

-- +goose Down
-- reverse: add columns to table: "post_delta"
ALTER TABLE `post_delta` DROP COLUMN `quotes`;
ALTER TABLE `post_delta` DROP COLUMN `reposts`;
ALTER TABLE `post_delta` DROP COLUMN `replies`;
