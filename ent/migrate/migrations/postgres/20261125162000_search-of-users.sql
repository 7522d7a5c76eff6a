-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS "user_name_parts";
CREATE INDEX CONCURRENTLY "user_name_parts" ON "users" USING gin ("parts_of_text"("name", 1) COLLATE "C");
DROP INDEX CONCURRENTLY IF EXISTS "user_handle_beginning";
CREATE INDEX CONCURRENTLY "user_handle_beginning" ON "users" (("handle"::text) text_pattern_ops);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS "user_handle_beginning";
DROP INDEX CONCURRENTLY IF EXISTS "user_name_parts";
