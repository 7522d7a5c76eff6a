-- +goose NO TRANSACTION
-- +goose Up
-- create index "hiddenuser_suspended_until" to table: "hidden_users"
DROP INDEX CONCURRENTLY IF EXISTS "hiddenuser_suspended_until";
CREATE INDEX CONCURRENTLY "hiddenuser_suspended_until" ON "hidden_users" ("suspended_until");

-- +goose Down
-- reverse: create index "hiddenuser_suspended_until" to table: "hidden_users"
DROP INDEX CONCURRENTLY IF EXISTS "hiddenuser_suspended_until";
