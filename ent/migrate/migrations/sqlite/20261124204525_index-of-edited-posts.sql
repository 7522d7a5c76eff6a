-- +goose Up
-- create index "post_author_id_edited_at" to table: "posts"
CREATE INDEX `post_author_id_edited_at` ON `posts` (`author_id`, `edited_at`) WHERE edited_at > 0;

-- +goose Down
-- reverse: create index "post_author_id_edited_at" to table: "posts"
DROP INDEX `post_author_id_edited_at`;
