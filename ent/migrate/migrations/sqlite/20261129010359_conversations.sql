-- +goose Up
-- add columns to table: "post_delta"
ALTER TABLE `post_delta` ADD COLUMN `replies` integer NOT NULL DEFAULT (0);
ALTER TABLE `post_delta` ADD COLUMN `reposts` integer NOT NULL DEFAULT (0);
ALTER TABLE `post_delta` ADD COLUMN `quotes` integer NOT NULL DEFAULT (0);
-- drop index "post_author_id_edited_at" from table: "posts"
DROP INDEX `post_author_id_edited_at`;
-- add columns to table: "posts"
ALTER TABLE `posts` ADD COLUMN `parent_id` integer NULL;
ALTER TABLE `posts` ADD COLUMN `parent_author_id` integer NULL;
ALTER TABLE `posts` ADD COLUMN `root_id` integer NULL;
ALTER TABLE `posts` ADD COLUMN `repost_of` integer NULL;
ALTER TABLE `posts` ADD COLUMN `quote_of` integer NULL;
ALTER TABLE `posts` ADD COLUMN `quote_withdrawn` bool NOT NULL DEFAULT (false);
ALTER TABLE `posts` ADD COLUMN `reply_audience` text NULL;
ALTER TABLE `posts` ADD COLUMN `quote_audience` text NULL;
ALTER TABLE `posts` ADD COLUMN `changed_at` integer NOT NULL DEFAULT (0);
ALTER TABLE `posts` ADD COLUMN `reply_count` integer NOT NULL DEFAULT (0);
ALTER TABLE `posts` ADD COLUMN `repost_count` integer NOT NULL DEFAULT (0);
ALTER TABLE `posts` ADD COLUMN `quote_count` integer NOT NULL DEFAULT (0);
-- create index "post_author_id_changed_at" to table: "posts"
CREATE INDEX `post_author_id_changed_at` ON `posts` (`author_id`, `changed_at`) WHERE changed_at > 0;
-- create index "post_parent_id_id" to table: "posts"
CREATE INDEX `post_parent_id_id` ON `posts` (`parent_id`, `id`) WHERE parent_id IS NOT NULL;
-- create index "post_root_id_id" to table: "posts"
CREATE INDEX `post_root_id_id` ON `posts` (`root_id`, `id`) WHERE root_id IS NOT NULL;
-- create index "post_repost_of_id" to table: "posts"
CREATE INDEX `post_repost_of_id` ON `posts` (`repost_of`, `id`) WHERE repost_of IS NOT NULL;
-- create index "post_author_id_repost_of" to table: "posts"
CREATE UNIQUE INDEX `post_author_id_repost_of` ON `posts` (`author_id`, `repost_of`) WHERE repost_of IS NOT NULL;
-- create index "post_quote_of_id" to table: "posts"
CREATE INDEX `post_quote_of_id` ON `posts` (`quote_of`, `id`) WHERE quote_of IS NOT NULL;
-- add a column to table: "users"
ALTER TABLE `users` ADD COLUMN `home_replies` text NOT NULL DEFAULT ('FOLLOWED');
-- create "post_mentions" table
CREATE TABLE `post_mentions` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `start` integer NOT NULL, `end` integer NOT NULL, `post_id` integer NOT NULL, `user_id` integer NOT NULL, CONSTRAINT `post_mentions_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE, CONSTRAINT `post_mentions_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "postmention_post_id_start" to table: "post_mentions"
CREATE UNIQUE INDEX `postmention_post_id_start` ON `post_mentions` (`post_id`, `start`);
-- create index "postmention_user_id_post_id" to table: "post_mentions"
CREATE INDEX `postmention_user_id_post_id` ON `post_mentions` (`user_id`, `post_id`);

-- +goose Down
-- reverse: create "post_mentions" table
DROP TABLE `post_mentions`;
-- reverse: add a column to table: "users"
ALTER TABLE `users` DROP COLUMN `home_replies`;
-- reverse: create index "post_quote_of_id" to table: "posts"
DROP INDEX `post_quote_of_id`;
-- reverse: create index "post_author_id_repost_of" to table: "posts"
DROP INDEX `post_author_id_repost_of`;
-- reverse: create index "post_repost_of_id" to table: "posts"
DROP INDEX `post_repost_of_id`;
-- reverse: create index "post_root_id_id" to table: "posts"
DROP INDEX `post_root_id_id`;
-- reverse: create index "post_parent_id_id" to table: "posts"
DROP INDEX `post_parent_id_id`;
-- reverse: create index "post_author_id_changed_at" to table: "posts"
DROP INDEX `post_author_id_changed_at`;
-- reverse: add columns to table: "posts"
ALTER TABLE `posts` DROP COLUMN `quote_count`;
ALTER TABLE `posts` DROP COLUMN `repost_count`;
ALTER TABLE `posts` DROP COLUMN `reply_count`;
ALTER TABLE `posts` DROP COLUMN `changed_at`;
ALTER TABLE `posts` DROP COLUMN `quote_audience`;
ALTER TABLE `posts` DROP COLUMN `reply_audience`;
ALTER TABLE `posts` DROP COLUMN `quote_withdrawn`;
ALTER TABLE `posts` DROP COLUMN `quote_of`;
ALTER TABLE `posts` DROP COLUMN `repost_of`;
ALTER TABLE `posts` DROP COLUMN `root_id`;
ALTER TABLE `posts` DROP COLUMN `parent_author_id`;
ALTER TABLE `posts` DROP COLUMN `parent_id`;
-- reverse: drop index "post_author_id_edited_at" from table: "posts"
CREATE INDEX `post_author_id_edited_at` ON `posts` (`author_id`, `edited_at`) WHERE edited_at > 0;
-- reverse: add columns to table: "post_delta"
ALTER TABLE `post_delta` DROP COLUMN `quotes`;
ALTER TABLE `post_delta` DROP COLUMN `reposts`;
ALTER TABLE `post_delta` DROP COLUMN `replies`;
