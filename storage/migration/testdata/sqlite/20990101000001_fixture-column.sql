-- +goose Up
ALTER TABLE `users` ADD COLUMN `fixture` integer NOT NULL DEFAULT (0);

-- +goose Down
ALTER TABLE `users` DROP COLUMN `fixture`;
