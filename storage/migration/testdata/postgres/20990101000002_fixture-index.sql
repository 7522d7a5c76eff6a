-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS "user_fixture";
CREATE INDEX CONCURRENTLY "user_fixture" ON "users" ("role");

-- +goose Down
DROP INDEX CONCURRENTLY "user_fixture";
