-- +goose NO TRANSACTION
-- +goose Up
-- create index "post_newest_public" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_newest_public";
CREATE INDEX CONCURRENTLY "post_newest_public" ON "posts" ("id") WHERE visibility = 'PUBLIC' AND parent_id IS NULL AND repost_of IS NULL;

-- +goose Down
-- reverse: create index "post_newest_public" to table: "posts"
DROP INDEX CONCURRENTLY IF EXISTS "post_newest_public";
