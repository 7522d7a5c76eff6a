-- tideline: contract
-- +goose NO TRANSACTION
-- +goose Up
-- versions before search users by these
DROP INDEX CONCURRENTLY IF EXISTS "user_handle_beginning";
DROP INDEX CONCURRENTLY IF EXISTS "user_name_parts";

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS "user_name_parts";
CREATE INDEX CONCURRENTLY "user_name_parts" ON "users" USING gin ("parts_of_text"("name", 1) COLLATE "C");
DROP INDEX CONCURRENTLY IF EXISTS "user_handle_beginning";
CREATE INDEX CONCURRENTLY "user_handle_beginning" ON "users" (("handle"::text) text_pattern_ops);
