-- +goose Up
-- create "post_tags" table
CREATE TABLE `post_tags` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `tag` text NOT NULL, `post_id` integer NOT NULL, CONSTRAINT `post_tags_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "posttag_tag_post_id" to table: "post_tags"
CREATE UNIQUE INDEX `posttag_tag_post_id` ON `post_tags` (`tag`, `post_id`);
-- create index "posttag_post_id" to table: "post_tags"
CREATE INDEX `posttag_post_id` ON `post_tags` (`post_id`);

-- +goose Down
-- reverse: create index "posttag_post_id" to table: "post_tags"
DROP INDEX `posttag_post_id`;
-- reverse: create index "posttag_tag_post_id" to table: "post_tags"
DROP INDEX `posttag_tag_post_id`;
-- reverse: create "post_tags" table
DROP TABLE `post_tags`;
