-- +goose Up
-- create index "post_author_id_visibility_id" to table: "posts"
CREATE INDEX "post_author_id_visibility_id" ON "posts" ("author_id", "visibility", "id");

-- +goose Down
-- reverse: create index "post_author_id_visibility_id" to table: "posts"
DROP INDEX "post_author_id_visibility_id";
