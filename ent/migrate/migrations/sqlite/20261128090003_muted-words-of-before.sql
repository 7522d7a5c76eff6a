-- +goose Up
-- create index "muted_word_of_before" to table: "muted_words"
CREATE INDEX `muted_word_of_before` ON `muted_words` (`id`) WHERE form < 1;

-- +goose Down
-- reverse: create index "muted_word_of_before" to table: "muted_words"
DROP INDEX `muted_word_of_before`;
