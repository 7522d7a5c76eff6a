-- +goose Up
-- drop index "user_fan_out_mode_follower_count" from table: "users"
DROP INDEX `user_fan_out_mode_follower_count`;
-- create index "user_fan_out_mode" to table: "users"
CREATE INDEX `user_fan_out_mode` ON `users` (`fan_out_mode`);

-- +goose Down
-- reverse: create index "user_fan_out_mode" to table: "users"
DROP INDEX `user_fan_out_mode`;
-- reverse: drop index "user_fan_out_mode_follower_count" from table: "users"
CREATE INDEX `user_fan_out_mode_follower_count` ON `users` (`fan_out_mode`, `follower_count`);
