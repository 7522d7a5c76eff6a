-- +goose NO TRANSACTION
-- +goose Up
-- create index "hiddenuser_state_id" to table: "hidden_users"
DROP INDEX CONCURRENTLY IF EXISTS "hiddenuser_state_id";
CREATE INDEX CONCURRENTLY "hiddenuser_state_id" ON "hidden_users" ("state", "id");

-- +goose Down
-- reverse: create index "hiddenuser_state_id" to table: "hidden_users"
DROP INDEX CONCURRENTLY IF EXISTS "hiddenuser_state_id";
