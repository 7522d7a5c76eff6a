-- tideline: contract
-- +goose Up
-- drop index "user_fan_out_mode_follower_count" from table: "users": versions before look for authors by it
DROP INDEX IF EXISTS `user_fan_out_mode_follower_count`;

-- +goose Down
-- reverse: drop index "user_fan_out_mode_follower_count" from table: "users"
CREATE INDEX `user_fan_out_mode_follower_count` ON `users` (`fan_out_mode`, `follower_count`);
