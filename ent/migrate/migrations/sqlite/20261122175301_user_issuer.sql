-- +goose Up
-- add column "tokens_since" to table: "sessions"
ALTER TABLE `sessions` ADD COLUMN `tokens_since` datetime NULL;
-- add the columns "issuer", "external_id" and "signed_out_before" to table: "users"
ALTER TABLE `users` ADD COLUMN `issuer` text NULL;
ALTER TABLE `users` ADD COLUMN `external_id` blob NULL;
ALTER TABLE `users` ADD COLUMN `signed_out_before` datetime NULL;
-- create index "user_issuer_external_id" to table: "users"
CREATE UNIQUE INDEX `user_issuer_external_id` ON `users` (`issuer`, `external_id`);

-- +goose Down
-- reverse: create index "user_issuer_external_id" to table: "users"
DROP INDEX `user_issuer_external_id`;
-- reverse: add the columns "issuer", "external_id" and "signed_out_before" to table: "users"
ALTER TABLE `users` DROP COLUMN `signed_out_before`;
ALTER TABLE `users` DROP COLUMN `external_id`;
ALTER TABLE `users` DROP COLUMN `issuer`;
-- reverse: add column "tokens_since" to table: "sessions"
ALTER TABLE `sessions` DROP COLUMN `tokens_since`;
