-- +goose NO TRANSACTION
-- +goose Up
-- create index "user_unindexed" to table: "users"
DROP INDEX CONCURRENTLY IF EXISTS "user_unindexed";
CREATE INDEX CONCURRENTLY "user_unindexed" ON "users" ("id") WHERE indexed_as IS DISTINCT FROM (handle || ' ' || name);

-- +goose Down
-- reverse: create index "user_unindexed" to table: "users"
DROP INDEX CONCURRENTLY IF EXISTS "user_unindexed";
