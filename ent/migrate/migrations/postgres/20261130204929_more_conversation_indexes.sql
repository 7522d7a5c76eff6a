-- +goose NO TRANSACTION
-- +goose Up
-- create index "post_conversation" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_conversation";
CREATE INDEX CONCURRENTLY "post_conversation" ON "posts" ("root_id", "id") WHERE (parent_id IS NOT NULL);
-- create index "post_parent_author_id_id" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_parent_author_id_id";
CREATE INDEX CONCURRENTLY "post_parent_author_id_id" ON "posts" ("parent_author_id", "id") WHERE (parent_author_id IS NOT NULL);

-- +goose Down
-- reverse: create index "post_parent_author_id_id" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_parent_author_id_id";
-- reverse: create index "post_conversation" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_conversation";
