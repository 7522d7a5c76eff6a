-- +goose Up
-- create "blocks" table
CREATE TABLE `blocks` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `created_at` datetime NOT NULL, `blocker_id` integer NOT NULL, `blocked_id` integer NOT NULL, CONSTRAINT `blocks_users_blocker` FOREIGN KEY (`blocker_id`) REFERENCES `users` (`id`) ON DELETE CASCADE, CONSTRAINT `blocks_users_blocked` FOREIGN KEY (`blocked_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "block_blocker_id_blocked_id" to table: "blocks"
CREATE UNIQUE INDEX `block_blocker_id_blocked_id` ON `blocks` (`blocker_id`, `blocked_id`);
-- create index "block_blocked_id_id_blocker_id" to table: "blocks"
CREATE INDEX `block_blocked_id_id_blocker_id` ON `blocks` (`blocked_id`, `id`, `blocker_id`);
-- create index "block_blocker_id_id_blocked_id" to table: "blocks"
CREATE INDEX `block_blocker_id_id_blocked_id` ON `blocks` (`blocker_id`, `id`, `blocked_id`);
-- create "deliveries" table
CREATE TABLE `deliveries` (`id` integer NOT NULL, `pushed` integer NOT NULL DEFAULT (0), `pulled` integer NOT NULL DEFAULT (0), `skipped` integer NOT NULL DEFAULT (0), `first_lag` integer NOT NULL DEFAULT (0), `median_lag` integer NOT NULL DEFAULT (0), `last_lag` integer NOT NULL DEFAULT (0), `done` bool NOT NULL DEFAULT (false), PRIMARY KEY (`id`));
-- create "follows" table
CREATE TABLE `follows` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `created_at` datetime NOT NULL, `follower_id` integer NOT NULL, `followee_id` integer NOT NULL, CONSTRAINT `follows_users_follower` FOREIGN KEY (`follower_id`) REFERENCES `users` (`id`) ON DELETE CASCADE, CONSTRAINT `follows_users_followee` FOREIGN KEY (`followee_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "follow_follower_id_followee_id" to table: "follows"
CREATE UNIQUE INDEX `follow_follower_id_followee_id` ON `follows` (`follower_id`, `followee_id`);
-- create index "follow_followee_id_id_follower_id" to table: "follows"
CREATE INDEX `follow_followee_id_id_follower_id` ON `follows` (`followee_id`, `id`, `follower_id`);
-- create index "follow_follower_id_id_followee_id" to table: "follows"
CREATE INDEX `follow_follower_id_id_followee_id` ON `follows` (`follower_id`, `id`, `followee_id`);
-- create "follow_requests" table
CREATE TABLE `follow_requests` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `created_at` datetime NOT NULL, `requester_id` integer NOT NULL, `target_id` integer NOT NULL, CONSTRAINT `follow_requests_users_requester` FOREIGN KEY (`requester_id`) REFERENCES `users` (`id`) ON DELETE CASCADE, CONSTRAINT `follow_requests_users_target` FOREIGN KEY (`target_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "followrequest_requester_id_target_id" to table: "follow_requests"
CREATE UNIQUE INDEX `followrequest_requester_id_target_id` ON `follow_requests` (`requester_id`, `target_id`);
-- create index "followrequest_target_id_id_requester_id" to table: "follow_requests"
CREATE INDEX `followrequest_target_id_id_requester_id` ON `follow_requests` (`target_id`, `id`, `requester_id`);
-- create index "followrequest_requester_id_id_target_id" to table: "follow_requests"
CREATE INDEX `followrequest_requester_id_id_target_id` ON `follow_requests` (`requester_id`, `id`, `target_id`);
-- create "idempotency_keys" table
CREATE TABLE `idempotency_keys` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `user_id` integer NOT NULL, `key` text NOT NULL, `post_id` integer NOT NULL, `created_at` datetime NOT NULL);
-- create index "idempotencykey_user_id_key" to table: "idempotency_keys"
CREATE UNIQUE INDEX `idempotencykey_user_id_key` ON `idempotency_keys` (`user_id`, `key`);
-- create index "idempotencykey_created_at" to table: "idempotency_keys"
CREATE INDEX `idempotencykey_created_at` ON `idempotency_keys` (`created_at`);
-- create "jobs" table
CREATE TABLE `jobs` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `kind` text NOT NULL, `pool` text NOT NULL, `payload` json NOT NULL, `state` json NULL, `attempts` integer NOT NULL DEFAULT (0), `last_error` text NOT NULL DEFAULT (''), `dead` bool NOT NULL DEFAULT (false), `due_at` datetime NOT NULL, `created_at` datetime NOT NULL);
-- create index "job_dead_due_at" to table: "jobs"
CREATE INDEX `job_dead_due_at` ON `jobs` (`dead`, `due_at`);
-- create index "job_dead_pool_created_at" to table: "jobs"
CREATE INDEX `job_dead_pool_created_at` ON `jobs` (`dead`, `pool`, `created_at`);
-- create "likes" table
CREATE TABLE `likes` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `user_id` integer NOT NULL, `post_id` integer NOT NULL, CONSTRAINT `likes_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE, CONSTRAINT `likes_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "like_post_id_user_id" to table: "likes"
CREATE UNIQUE INDEX `like_post_id_user_id` ON `likes` (`post_id`, `user_id`);
-- create index "like_user_id" to table: "likes"
CREATE INDEX `like_user_id` ON `likes` (`user_id`);
-- create "mutes" table
CREATE TABLE `mutes` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `created_at` datetime NOT NULL, `muter_id` integer NOT NULL, `muted_id` integer NOT NULL, CONSTRAINT `mutes_users_muter` FOREIGN KEY (`muter_id`) REFERENCES `users` (`id`) ON DELETE CASCADE, CONSTRAINT `mutes_users_muted` FOREIGN KEY (`muted_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "mute_muter_id_muted_id" to table: "mutes"
CREATE UNIQUE INDEX `mute_muter_id_muted_id` ON `mutes` (`muter_id`, `muted_id`);
-- create index "mute_muted_id_id_muter_id" to table: "mutes"
CREATE INDEX `mute_muted_id_id_muter_id` ON `mutes` (`muted_id`, `id`, `muter_id`);
-- create index "mute_muter_id_id_muted_id" to table: "mutes"
CREATE INDEX `mute_muter_id_id_muted_id` ON `mutes` (`muter_id`, `id`, `muted_id`);
-- create "posts" table
CREATE TABLE `posts` (`id` integer NOT NULL, `text` text NOT NULL, `visibility` text NOT NULL, `like_count` integer NOT NULL DEFAULT (0), `author_id` integer NOT NULL, PRIMARY KEY (`id`), CONSTRAINT `posts_users_author` FOREIGN KEY (`author_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "post_author_id_id" to table: "posts"
CREATE INDEX `post_author_id_id` ON `posts` (`author_id`, `id`);
-- create "read_markers" table
CREATE TABLE `read_markers` (`id` integer NOT NULL, `post_id` integer NOT NULL DEFAULT (0), PRIMARY KEY (`id`));
-- create "sessions" table
CREATE TABLE `sessions` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `token_hash` blob NOT NULL, `created_at` datetime NOT NULL, `expires_at` datetime NOT NULL, `user_id` integer NOT NULL, CONSTRAINT `sessions_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "session_token_hash" to table: "sessions"
CREATE UNIQUE INDEX `session_token_hash` ON `sessions` (`token_hash`);
-- create index "session_user_id" to table: "sessions"
CREATE INDEX `session_user_id` ON `sessions` (`user_id`);
-- create index "session_expires_at" to table: "sessions"
CREATE INDEX `session_expires_at` ON `sessions` (`expires_at`);
-- create "users" table
CREATE TABLE `users` (`id` integer NOT NULL, `handle` text NOT NULL, `name` text NOT NULL DEFAULT (''), `bio` text NOT NULL DEFAULT (''), `password_hash` text NOT NULL, `approves_followers` bool NOT NULL DEFAULT (false), `default_visibility` text NOT NULL DEFAULT ('PUBLIC'), `follower_count` integer NOT NULL DEFAULT (0), `following_count` integer NOT NULL DEFAULT (0), `post_count` integer NOT NULL DEFAULT (0), `last_post_id` integer NOT NULL DEFAULT (0), `diffusion` text NOT NULL DEFAULT ('PUSH'), `diffusion_since` integer NOT NULL DEFAULT (0), `created_at` datetime NOT NULL, PRIMARY KEY (`id`));
-- create index "user_handle" to table: "users"
CREATE UNIQUE INDEX `user_handle` ON `users` (`handle`);
-- create index "user_diffusion_follower_count" to table: "users"
CREATE INDEX `user_diffusion_follower_count` ON `users` (`diffusion`, `follower_count`);
-- create "writers" table
CREATE TABLE `writers` (`id` integer NOT NULL, `holder` text NOT NULL DEFAULT (''), `until` integer NOT NULL DEFAULT (0), PRIMARY KEY (`id`));

-- +goose Down
-- reverse: create "writers" table
DROP TABLE `writers`;
-- reverse: create index "user_diffusion_follower_count" to table: "users"
DROP INDEX `user_diffusion_follower_count`;
-- reverse: create index "user_handle" to table: "users"
DROP INDEX `user_handle`;
-- reverse: create "users" table
DROP TABLE `users`;
-- reverse: create index "session_expires_at" to table: "sessions"
DROP INDEX `session_expires_at`;
-- reverse: create index "session_user_id" to table: "sessions"
DROP INDEX `session_user_id`;
-- reverse: create index "session_token_hash" to table: "sessions"
DROP INDEX `session_token_hash`;
-- reverse: create "sessions" table
DROP TABLE `sessions`;
-- reverse: create "read_markers" table
DROP TABLE `read_markers`;
-- reverse: create index "post_author_id_id" to table: "posts"
DROP INDEX `post_author_id_id`;
-- reverse: create "posts" table
DROP TABLE `posts`;
-- reverse: create index "mute_muter_id_id_muted_id" to table: "mutes"
DROP INDEX `mute_muter_id_id_muted_id`;
-- reverse: create index "mute_muted_id_id_muter_id" to table: "mutes"
DROP INDEX `mute_muted_id_id_muter_id`;
-- reverse: create index "mute_muter_id_muted_id" to table: "mutes"
DROP INDEX `mute_muter_id_muted_id`;
-- reverse: create "mutes" table
DROP TABLE `mutes`;
-- reverse: create index "like_user_id" to table: "likes"
DROP INDEX `like_user_id`;
-- reverse: create index "like_post_id_user_id" to table: "likes"
DROP INDEX `like_post_id_user_id`;
-- reverse: create "likes" table
DROP TABLE `likes`;
-- reverse: create index "job_dead_pool_created_at" to table: "jobs"
DROP INDEX `job_dead_pool_created_at`;
-- reverse: create index "job_dead_due_at" to table: "jobs"
DROP INDEX `job_dead_due_at`;
-- reverse: create "jobs" table
DROP TABLE `jobs`;
-- reverse: create index "idempotencykey_created_at" to table: "idempotency_keys"
DROP INDEX `idempotencykey_created_at`;
-- reverse: create index "idempotencykey_user_id_key" to table: "idempotency_keys"
DROP INDEX `idempotencykey_user_id_key`;
-- reverse: create "idempotency_keys" table
DROP TABLE `idempotency_keys`;
-- reverse: create index "followrequest_requester_id_id_target_id" to table: "follow_requests"
DROP INDEX `followrequest_requester_id_id_target_id`;
-- reverse: create index "followrequest_target_id_id_requester_id" to table: "follow_requests"
DROP INDEX `followrequest_target_id_id_requester_id`;
-- reverse: create index "followrequest_requester_id_target_id" to table: "follow_requests"
DROP INDEX `followrequest_requester_id_target_id`;
-- reverse: create "follow_requests" table
DROP TABLE `follow_requests`;
-- reverse: create index "follow_follower_id_id_followee_id" to table: "follows"
DROP INDEX `follow_follower_id_id_followee_id`;
-- reverse: create index "follow_followee_id_id_follower_id" to table: "follows"
DROP INDEX `follow_followee_id_id_follower_id`;
-- reverse: create index "follow_follower_id_followee_id" to table: "follows"
DROP INDEX `follow_follower_id_followee_id`;
-- reverse: create "follows" table
DROP TABLE `follows`;
-- reverse: create "deliveries" table
DROP TABLE `deliveries`;
-- reverse: create index "block_blocker_id_id_blocked_id" to table: "blocks"
DROP INDEX `block_blocker_id_id_blocked_id`;
-- reverse: create index "block_blocked_id_id_blocker_id" to table: "blocks"
DROP INDEX `block_blocked_id_id_blocker_id`;
-- reverse: create index "block_blocker_id_blocked_id" to table: "blocks"
DROP INDEX `block_blocker_id_blocked_id`;
-- reverse: create "blocks" table
DROP TABLE `blocks`;
