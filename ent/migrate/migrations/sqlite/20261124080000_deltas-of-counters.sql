-- +goose Up
-- create "post_delta" table
CREATE TABLE `post_delta` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `likes` integer NOT NULL DEFAULT 0, `post_id` integer NOT NULL, CONSTRAINT `post_delta_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "postdelta_post_id" to table: "post_delta"
CREATE INDEX `postdelta_post_id` ON `post_delta` (`post_id`);
-- create "user_delta" table
CREATE TABLE `user_delta` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `followers` integer NOT NULL DEFAULT 0, `following` integer NOT NULL DEFAULT 0, `user_id` integer NOT NULL, CONSTRAINT `user_delta_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "userdelta_user_id" to table: "user_delta"
CREATE INDEX `userdelta_user_id` ON `user_delta` (`user_id`);

-- +goose Down
-- reverse: create index "userdelta_user_id" to table: "user_delta"
DROP INDEX `userdelta_user_id`;
-- reverse: create "user_delta" table
DROP TABLE `user_delta`;
-- reverse: create index "postdelta_post_id" to table: "post_delta"
DROP INDEX `postdelta_post_id`;
-- reverse: create "post_delta" table
DROP TABLE `post_delta`;
