-- +goose Up
-- create "post_mentions" table
CREATE TABLE `post_mentions` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `start` integer NOT NULL, `end` integer NOT NULL, `post_id` integer NOT NULL, `user_id` integer NOT NULL, CONSTRAINT `post_mentions_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "postmention_post_id_start" to table: "post_mentions"
CREATE UNIQUE INDEX `postmention_post_id_start` ON `post_mentions` (`post_id`, `start`);
-- create index "postmention_user_id_post_id" to table: "post_mentions"
CREATE INDEX `postmention_user_id_post_id` ON `post_mentions` (`user_id`, `post_id`);

-- +goose Down
-- reverse: create "post_mentions" table
DROP TABLE `post_mentions`;
