-- +goose Up
-- a database of before the first release may have it
-- create "post_data" table
CREATE TABLE IF NOT EXISTS `post_data` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `data` text NOT NULL, `post_id` integer NOT NULL, CONSTRAINT `post_data_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "postdata_post_id" to table: "post_data"
CREATE UNIQUE INDEX IF NOT EXISTS `postdata_post_id` ON `post_data` (`post_id`);

-- +goose Down
-- reverse: create index "postdata_post_id" to table: "post_data"
DROP INDEX `postdata_post_id`;
-- reverse: create "post_data" table
DROP TABLE `post_data`;
