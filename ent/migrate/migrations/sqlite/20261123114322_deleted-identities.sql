-- +goose Up
-- add column "identity" to table: "hidden_users"
ALTER TABLE `hidden_users` ADD COLUMN `identity` blob NULL;
-- create index "hiddenuser_identity" to table: "hidden_users"
CREATE INDEX `hiddenuser_identity` ON `hidden_users` (`identity`);

-- +goose Down
-- reverse: create index "hiddenuser_identity" to table: "hidden_users"
DROP INDEX `hiddenuser_identity`;
-- reverse: add column "identity" to table: "hidden_users"
ALTER TABLE `hidden_users` DROP COLUMN `identity`;
