-- +goose Up
-- drop index "like_user_id" from table: "likes"
DROP INDEX `like_user_id`;
-- create index "like_user_id_id_post_id" to table: "likes"
CREATE INDEX `like_user_id_id_post_id` ON `likes` (`user_id`, `id`, `post_id`);

-- +goose Down
-- reverse: create index "like_user_id_id_post_id" to table: "likes"
DROP INDEX `like_user_id_id_post_id`;
-- reverse: drop index "like_user_id" from table: "likes"
CREATE INDEX `like_user_id` ON `likes` (`user_id`);
