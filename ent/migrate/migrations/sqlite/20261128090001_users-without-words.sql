-- +goose Up
-- create index "user_unindexed" to table: "users"
CREATE INDEX `user_unindexed` ON `users` (`id`) WHERE indexed_as IS DISTINCT FROM (handle || ' ' || name);

-- +goose Down
-- reverse: create index "user_unindexed" to table: "users"
DROP INDEX `user_unindexed`;
