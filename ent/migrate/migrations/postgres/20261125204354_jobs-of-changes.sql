-- +goose NO TRANSACTION
-- +goose Up
-- create index "job_changes" to table: "jobs"
DROP INDEX CONCURRENTLY IF EXISTS "job_changes";
CREATE INDEX CONCURRENTLY "job_changes" ON "jobs" ("id") WHERE kind NOT IN ('post.created', 'post.erased', 'author.returns', 'words.changed', 'canary', 'canary_subscriber');

-- +goose Down
-- reverse: create index "job_changes" to table: "jobs"
DROP INDEX CONCURRENTLY IF EXISTS "job_changes";
