-- +goose Up
-- drop index "user_diffusion_follower_count" from table: "users"
DROP INDEX `user_diffusion_follower_count`;
-- rename a column from "diffusion" to "fan_out_mode"
ALTER TABLE `users` RENAME COLUMN `diffusion` TO `fan_out_mode`;
-- rename a column from "diffusion_since" to "fan_out_mode_since"
ALTER TABLE `users` RENAME COLUMN `diffusion_since` TO `fan_out_mode_since`;
-- create index "user_fan_out_mode_follower_count" to table: "users"
CREATE INDEX `user_fan_out_mode_follower_count` ON `users` (`fan_out_mode`, `follower_count`);
-- rename the modes between push and pull, and the job that ends the second
UPDATE `users` SET `fan_out_mode` = 'PUSH_TO_PULL' WHERE `fan_out_mode` = 'RISING';
UPDATE `users` SET `fan_out_mode` = 'PULL_TO_PUSH' WHERE `fan_out_mode` = 'FALLING';
UPDATE `jobs` SET `kind` = 'author.returns' WHERE `kind` = 'author.falling';

-- +goose Down
UPDATE `jobs` SET `kind` = 'author.falling' WHERE `kind` = 'author.returns';
UPDATE `users` SET `fan_out_mode` = 'FALLING' WHERE `fan_out_mode` = 'PULL_TO_PUSH';
UPDATE `users` SET `fan_out_mode` = 'RISING' WHERE `fan_out_mode` = 'PUSH_TO_PULL';
-- reverse: create index "user_fan_out_mode_follower_count" to table: "users"
DROP INDEX `user_fan_out_mode_follower_count`;
-- reverse: rename a column from "diffusion_since" to "fan_out_mode_since"
ALTER TABLE `users` RENAME COLUMN `fan_out_mode_since` TO `diffusion_since`;
-- reverse: rename a column from "diffusion" to "fan_out_mode"
ALTER TABLE `users` RENAME COLUMN `fan_out_mode` TO `diffusion`;
-- reverse: drop index "user_diffusion_follower_count" from table: "users"
CREATE INDEX `user_diffusion_follower_count` ON `users` (`diffusion`, `follower_count`);
