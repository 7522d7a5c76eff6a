-- +goose Up
-- add column "public_post_count" to table: "users"
ALTER TABLE `users` ADD COLUMN `public_post_count` integer NOT NULL DEFAULT 0;
-- add column "followers_post_count" to table: "users"
ALTER TABLE `users` ADD COLUMN `followers_post_count` integer NOT NULL DEFAULT 0;
-- add column "mutuals_post_count" to table: "users"
ALTER TABLE `users` ADD COLUMN `mutuals_post_count` integer NOT NULL DEFAULT 0;
-- fill in what the posts there are count for
UPDATE `users` SET `public_post_count` = `counted`.`public_post_count`, `followers_post_count` = `counted`.`followers_post_count`, `mutuals_post_count` = `counted`.`mutuals_post_count` FROM (SELECT `author_id`, count(*) FILTER (WHERE `visibility` = 'PUBLIC') AS `public_post_count`, count(*) FILTER (WHERE `visibility` = 'FOLLOWERS') AS `followers_post_count`, count(*) FILTER (WHERE `visibility` = 'MUTUALS') AS `mutuals_post_count` FROM `posts` GROUP BY `author_id`) AS `counted` WHERE `counted`.`author_id` = `users`.`id`;

-- +goose Down
-- reverse: add column "mutuals_post_count" to table: "users"
ALTER TABLE `users` DROP COLUMN `mutuals_post_count`;
-- reverse: add column "followers_post_count" to table: "users"
ALTER TABLE `users` DROP COLUMN `followers_post_count`;
-- reverse: add column "public_post_count" to table: "users"
ALTER TABLE `users` DROP COLUMN `public_post_count`;
