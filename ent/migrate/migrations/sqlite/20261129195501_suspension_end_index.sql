-- +goose Up
-- create index "hiddenuser_suspended_until" to table: "hidden_users"
CREATE INDEX `hiddenuser_suspended_until` ON `hidden_users` (`suspended_until`);

-- +goose Down
-- reverse: create index "hiddenuser_suspended_until" to table: "hidden_users"
DROP INDEX `hiddenuser_suspended_until`;
