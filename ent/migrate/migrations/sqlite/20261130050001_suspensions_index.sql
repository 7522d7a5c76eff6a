-- +goose Up
-- create index "hiddenuser_state_id" to table: "hidden_users"
CREATE INDEX `hiddenuser_state_id` ON `hidden_users` (`state`, `id`);

-- +goose Down
-- reverse: create index "hiddenuser_state_id" to table: "hidden_users"
DROP INDEX `hiddenuser_state_id`;
