-- +goose Up
-- add column "edited_at" to table: "posts"
ALTER TABLE `posts` ADD COLUMN `edited_at` integer NOT NULL DEFAULT (0);
-- create "post_versions" table
CREATE TABLE `post_versions` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `text` text NOT NULL, `data` text NOT NULL, `written_at` integer NOT NULL, `post_id` integer NOT NULL, CONSTRAINT `post_versions_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "postversion_post_id_id" to table: "post_versions"
CREATE INDEX `postversion_post_id_id` ON `post_versions` (`post_id`, `id`);

-- +goose Down
-- reverse: create index "postversion_post_id_id" to table: "post_versions"
DROP INDEX `postversion_post_id_id`;
-- reverse: create "post_versions" table
DROP TABLE `post_versions`;
-- reverse: add column "edited_at" to table: "posts"
ALTER TABLE `posts` DROP COLUMN `edited_at`;
