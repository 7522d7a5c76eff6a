-- +goose Up
-- create "post_delta" table
CREATE TABLE `post_delta` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `likes` integer NOT NULL DEFAULT 0, `post_id` integer NOT NULL, CONSTRAINT `post_delta_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "postdelta_post_id" to table: "post_delta"
CREATE INDEX `postdelta_post_id` ON `post_delta` (`post_id`);

-- +goose Down
-- reverse: create index "postdelta_post_id" to table: "post_delta"
DROP INDEX `postdelta_post_id`;
-- reverse: create "post_delta" table
DROP TABLE `post_delta`;
