-- +goose NO TRANSACTION
-- +goose Up
-- create index "post_author_id_changed_at" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_author_id_changed_at";
CREATE INDEX CONCURRENTLY "post_author_id_changed_at" ON "posts" ("author_id", "changed_at") WHERE (changed_at > 0);
-- create index "post_author_id_repost_of" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_author_id_repost_of";
CREATE UNIQUE INDEX CONCURRENTLY "post_author_id_repost_of" ON "posts" ("author_id", "repost_of") WHERE (repost_of IS NOT NULL);
-- create index "post_parent_id_id" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_parent_id_id";
CREATE INDEX CONCURRENTLY "post_parent_id_id" ON "posts" ("parent_id", "id") WHERE (parent_id IS NOT NULL);
-- create index "post_quote_of_id" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_quote_of_id";
CREATE INDEX CONCURRENTLY "post_quote_of_id" ON "posts" ("quote_of", "id") WHERE (quote_of IS NOT NULL);
-- create index "post_repost_of_id" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_repost_of_id";
CREATE INDEX CONCURRENTLY "post_repost_of_id" ON "posts" ("repost_of", "id") WHERE (repost_of IS NOT NULL);
-- create index "post_root_id_id" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_root_id_id";
CREATE INDEX CONCURRENTLY "post_root_id_id" ON "posts" ("root_id", "id") WHERE (root_id IS NOT NULL);

-- +goose Down
-- reverse: create index "post_root_id_id" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_root_id_id";
-- reverse: create index "post_repost_of_id" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_repost_of_id";
-- reverse: create index "post_quote_of_id" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_quote_of_id";
-- reverse: create index "post_parent_id_id" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_parent_id_id";
-- reverse: create index "post_author_id_repost_of" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_author_id_repost_of";
-- reverse: create index "post_author_id_changed_at" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_author_id_changed_at";
