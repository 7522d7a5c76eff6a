-- +goose NO TRANSACTION
-- +goose Up
-- create index "muted_word_of_before" to table: "muted_words"
DROP INDEX CONCURRENTLY IF EXISTS "muted_word_of_before";
CREATE INDEX CONCURRENTLY "muted_word_of_before" ON "muted_words" ("id") WHERE form < 1;

-- +goose Down
-- reverse: create index "muted_word_of_before" to table: "muted_words"
DROP INDEX CONCURRENTLY IF EXISTS "muted_word_of_before";
