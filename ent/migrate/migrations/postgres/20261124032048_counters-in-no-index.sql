-- +goose NO TRANSACTION
-- +goose Up
-- create index "user_fan_out_mode" to table: "users"
DROP INDEX CONCURRENTLY IF EXISTS "user_fan_out_mode";
CREATE INDEX CONCURRENTLY "user_fan_out_mode" ON "users" ("fan_out_mode");

-- +goose Down
-- reverse: create index "user_fan_out_mode" to table: "users"
DROP INDEX CONCURRENTLY "user_fan_out_mode";
