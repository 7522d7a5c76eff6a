-- +goose Up
-- add column "form" to table: "muted_words"
ALTER TABLE `muted_words` ADD COLUMN `form` integer NOT NULL DEFAULT 0;

-- +goose Down
-- reverse: add column "form" to table: "muted_words"
ALTER TABLE `muted_words` DROP COLUMN `form`;
