-- tideline: contract
-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS "user_fixture_before";

-- +goose Down
CREATE INDEX CONCURRENTLY "user_fixture_before" ON "users" ("role", "handle");
