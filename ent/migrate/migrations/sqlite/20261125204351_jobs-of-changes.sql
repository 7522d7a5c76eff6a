-- +goose Up
-- create index "job_changes" to table: "jobs"
CREATE INDEX `job_changes` ON `jobs` (`id`) WHERE kind NOT IN ('post.created', 'post.erased', 'author.returns', 'words.changed', 'canary', 'canary_subscriber');

-- +goose Down
-- reverse: create index "job_changes" to table: "jobs"
DROP INDEX `job_changes`;
