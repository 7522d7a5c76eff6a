-- +goose Up
-- create index "user_fan_out_mode" to table: "users"
CREATE INDEX `user_fan_out_mode` ON `users` (`fan_out_mode`);

-- +goose Down
-- reverse: create index "user_fan_out_mode" to table: "users"
DROP INDEX `user_fan_out_mode`;
