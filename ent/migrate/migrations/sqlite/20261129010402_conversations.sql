-- +goose Up
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

-- +goose Down
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
