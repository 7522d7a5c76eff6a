-- +goose Up
-- create "api_keys" table
CREATE TABLE `api_keys` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `name` text NOT NULL, `issuer` text NOT NULL DEFAULT (''), `scopes` text NOT NULL, `secret_hash` blob NOT NULL, `created_at` datetime NOT NULL, `last_used_at` datetime NULL, `revoked_at` datetime NULL);
-- create "audit_entries" table
CREATE TABLE `audit_entries` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `actor_id` integer NOT NULL, `key_id` integer NOT NULL DEFAULT (0), `action` text NOT NULL, `subject_kind` text NOT NULL, `subject_id` integer NOT NULL, `note` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL);
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
-- create "external_posts" table
CREATE TABLE `external_posts` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `issuer` text NOT NULL, `external_id` blob NOT NULL, `post_id` integer NOT NULL, CONSTRAINT `external_posts_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "externalpost_issuer_external_id" to table: "external_posts"
CREATE UNIQUE INDEX `externalpost_issuer_external_id` ON `external_posts` (`issuer`, `external_id`);
-- create index "externalpost_post_id" to table: "external_posts"
CREATE INDEX `externalpost_post_id` ON `external_posts` (`post_id`);
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
-- create "hidden_users" table
CREATE TABLE `hidden_users` (`id` integer NOT NULL, `state` text NOT NULL, `due_at` datetime NOT NULL, `identity` blob NULL, PRIMARY KEY (`id`));
-- create index "hiddenuser_due_at" to table: "hidden_users"
CREATE INDEX `hiddenuser_due_at` ON `hidden_users` (`due_at`);
-- create index "hiddenuser_identity" to table: "hidden_users"
CREATE INDEX `hiddenuser_identity` ON `hidden_users` (`identity`);
-- create "idempotency_keys" table
CREATE TABLE `idempotency_keys` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `user_id` integer NOT NULL, `key` text NOT NULL, `post_id` integer NOT NULL, `created_at` datetime NOT NULL);
-- create index "idempotencykey_user_id_key" to table: "idempotency_keys"
CREATE UNIQUE INDEX `idempotencykey_user_id_key` ON `idempotency_keys` (`user_id`, `key`);
-- create index "idempotencykey_created_at" to table: "idempotency_keys"
CREATE INDEX `idempotencykey_created_at` ON `idempotency_keys` (`created_at`);
-- create "jobs" table
CREATE TABLE `jobs` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `kind` text NOT NULL, `pool` text NOT NULL, `payload` json NOT NULL, `state` json NULL, `attempts` integer NOT NULL DEFAULT (0), `last_error` text NOT NULL DEFAULT (''), `claim` integer NOT NULL DEFAULT (0), `restart` bool NOT NULL DEFAULT (false), `dead` bool NOT NULL DEFAULT (false), `due_at` datetime NOT NULL, `created_at` datetime NOT NULL);
-- create index "job_dead_due_at" to table: "jobs"
CREATE INDEX `job_dead_due_at` ON `jobs` (`dead`, `due_at`);
-- create index "job_dead_pool_created_at" to table: "jobs"
CREATE INDEX `job_dead_pool_created_at` ON `jobs` (`dead`, `pool`, `created_at`);
-- create index "job_changes" to table: "jobs"
CREATE INDEX `job_changes` ON `jobs` (`id`) WHERE kind NOT IN ('post.created', 'post.erased', 'author.returns', 'words.changed', 'canary', 'canary_subscriber');
-- create "likes" table
CREATE TABLE `likes` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `user_id` integer NOT NULL, `post_id` integer NOT NULL, CONSTRAINT `likes_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE, CONSTRAINT `likes_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "like_post_id_user_id" to table: "likes"
CREATE UNIQUE INDEX `like_post_id_user_id` ON `likes` (`post_id`, `user_id`);
-- create index "like_user_id_id_post_id" to table: "likes"
CREATE INDEX `like_user_id_id_post_id` ON `likes` (`user_id`, `id`, `post_id`);
-- create "mutes" table
CREATE TABLE `mutes` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `created_at` datetime NOT NULL, `muter_id` integer NOT NULL, `muted_id` integer NOT NULL, CONSTRAINT `mutes_users_muter` FOREIGN KEY (`muter_id`) REFERENCES `users` (`id`) ON DELETE CASCADE, CONSTRAINT `mutes_users_muted` FOREIGN KEY (`muted_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "mute_muter_id_muted_id" to table: "mutes"
CREATE UNIQUE INDEX `mute_muter_id_muted_id` ON `mutes` (`muter_id`, `muted_id`);
-- create index "mute_muted_id_id_muter_id" to table: "mutes"
CREATE INDEX `mute_muted_id_id_muter_id` ON `mutes` (`muted_id`, `id`, `muter_id`);
-- create index "mute_muter_id_id_muted_id" to table: "mutes"
CREATE INDEX `mute_muter_id_id_muted_id` ON `mutes` (`muter_id`, `id`, `muted_id`);
-- create "muted_words" table
CREATE TABLE `muted_words` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `word` text NOT NULL, `head` text NOT NULL, `created_at` datetime NOT NULL, `user_id` integer NOT NULL, CONSTRAINT `muted_words_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "mutedword_user_id_word" to table: "muted_words"
CREATE UNIQUE INDEX `mutedword_user_id_word` ON `muted_words` (`user_id`, `word`);
-- create index "mutedword_head_user_id" to table: "muted_words"
CREATE INDEX `mutedword_head_user_id` ON `muted_words` (`head`, `user_id`);
-- create "posts" table
CREATE TABLE `posts` (`id` integer NOT NULL, `text` text NOT NULL, `edited_at` integer NOT NULL DEFAULT (0), `visibility` text NOT NULL, `like_count` integer NOT NULL DEFAULT (0), `author_id` integer NOT NULL, PRIMARY KEY (`id`), CONSTRAINT `posts_users_author` FOREIGN KEY (`author_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "post_author_id_id" to table: "posts"
CREATE INDEX `post_author_id_id` ON `posts` (`author_id`, `id`);
-- create index "post_author_id_visibility_id" to table: "posts"
CREATE INDEX `post_author_id_visibility_id` ON `posts` (`author_id`, `visibility`, `id`);
-- create index "post_author_id_edited_at" to table: "posts"
CREATE INDEX `post_author_id_edited_at` ON `posts` (`author_id`, `edited_at`) WHERE edited_at > 0;
-- create "post_data" table
CREATE TABLE `post_data` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `data` text NOT NULL, `post_id` integer NOT NULL, CONSTRAINT `post_data_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "postdata_post_id" to table: "post_data"
CREATE UNIQUE INDEX `postdata_post_id` ON `post_data` (`post_id`);
-- create "post_delta" table
CREATE TABLE `post_delta` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `likes` integer NOT NULL DEFAULT (0), `post_id` integer NOT NULL, CONSTRAINT `post_delta_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "postdelta_post_id" to table: "post_delta"
CREATE INDEX `postdelta_post_id` ON `post_delta` (`post_id`);
-- create "post_tags" table
CREATE TABLE `post_tags` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `tag` text NOT NULL, `post_id` integer NOT NULL, CONSTRAINT `post_tags_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "posttag_tag_post_id" to table: "post_tags"
CREATE UNIQUE INDEX `posttag_tag_post_id` ON `post_tags` (`tag`, `post_id`);
-- create index "posttag_post_id" to table: "post_tags"
CREATE INDEX `posttag_post_id` ON `post_tags` (`post_id`);
-- create "post_versions" table
CREATE TABLE `post_versions` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `text` text NOT NULL, `data` text NOT NULL, `written_at` integer NOT NULL, `post_id` integer NOT NULL, CONSTRAINT `post_versions_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "postversion_post_id_id" to table: "post_versions"
CREATE INDEX `postversion_post_id_id` ON `post_versions` (`post_id`, `id`);
-- create "processes" table
CREATE TABLE `processes` (`id` integer NOT NULL, `host` text NOT NULL, `pid` integer NOT NULL, `version` text NOT NULL, `roles` text NOT NULL, `started_at` datetime NOT NULL, `seen_at` datetime NOT NULL, `subscriptions` integer NOT NULL, `jobs` integer NOT NULL, `paused` bool NOT NULL, `wanted` text NOT NULL DEFAULT ('run'), PRIMARY KEY (`id`));
-- create index "process_seen_at" to table: "processes"
CREATE INDEX `process_seen_at` ON `processes` (`seen_at`);
-- create "read_markers" table
CREATE TABLE `read_markers` (`id` integer NOT NULL, `post_id` integer NOT NULL DEFAULT (0), PRIMARY KEY (`id`));
-- create "reports" table
CREATE TABLE `reports` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `post_id` integer NOT NULL DEFAULT (0), `reason` text NOT NULL, `comment` text NOT NULL DEFAULT (''), `text` text NOT NULL DEFAULT (''), `unseen` bool NOT NULL DEFAULT (false), `status` text NOT NULL DEFAULT ('OPEN'), `claimed_by` integer NOT NULL DEFAULT (0), `claimed_until` integer NOT NULL DEFAULT (0), `decided_at` integer NOT NULL DEFAULT (0), `note` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `reporter_id` integer NOT NULL, `reported_id` integer NOT NULL, CONSTRAINT `reports_users_reporter` FOREIGN KEY (`reporter_id`) REFERENCES `users` (`id`) ON DELETE CASCADE, CONSTRAINT `reports_users_reported` FOREIGN KEY (`reported_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "report_reporter_id_status" to table: "reports"
CREATE INDEX `report_reporter_id_status` ON `reports` (`reporter_id`, `status`);
-- create index "report_reported_id_post_id_status" to table: "reports"
CREATE INDEX `report_reported_id_post_id_status` ON `reports` (`reported_id`, `post_id`, `status`);
-- create index "report_status_id" to table: "reports"
CREATE INDEX `report_status_id` ON `reports` (`status`, `id`);
-- create "sessions" table
CREATE TABLE `sessions` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `token_hash` blob NOT NULL, `created_at` datetime NOT NULL, `expires_at` datetime NOT NULL, `tokens_since` datetime NULL, `user_agent` text NOT NULL DEFAULT (''), `user_id` integer NOT NULL, CONSTRAINT `sessions_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "session_token_hash" to table: "sessions"
CREATE UNIQUE INDEX `session_token_hash` ON `sessions` (`token_hash`);
-- create index "session_user_id" to table: "sessions"
CREATE INDEX `session_user_id` ON `sessions` (`user_id`);
-- create index "session_expires_at" to table: "sessions"
CREATE INDEX `session_expires_at` ON `sessions` (`expires_at`);
-- create "users" table
CREATE TABLE `users` (`id` integer NOT NULL, `handle` text NOT NULL, `name` text NOT NULL DEFAULT (''), `indexed_as` text NULL, `bio` text NOT NULL DEFAULT (''), `avatar_url` text NOT NULL DEFAULT (''), `links` text NOT NULL DEFAULT (''), `password_hash` text NOT NULL, `issuer` text NULL, `external_id` blob NULL, `signed_out_before` datetime NULL, `approves_followers` bool NOT NULL DEFAULT (false), `default_visibility` text NOT NULL DEFAULT ('PUBLIC'), `follower_count` integer NOT NULL DEFAULT (0), `following_count` integer NOT NULL DEFAULT (0), `post_count` integer NOT NULL DEFAULT (0), `public_post_count` integer NOT NULL DEFAULT (0), `followers_post_count` integer NOT NULL DEFAULT (0), `mutuals_post_count` integer NOT NULL DEFAULT (0), `last_post_id` integer NOT NULL DEFAULT (0), `fan_out_mode` text NOT NULL DEFAULT ('PUSH'), `fan_out_mode_since` integer NOT NULL DEFAULT (0), `hidden` bool NOT NULL DEFAULT (false), `role` text NOT NULL DEFAULT ('USER'), `created_at` datetime NOT NULL, PRIMARY KEY (`id`));
-- create index "user_handle" to table: "users"
CREATE UNIQUE INDEX `user_handle` ON `users` (`handle`);
-- create index "user_issuer_external_id" to table: "users"
CREATE UNIQUE INDEX `user_issuer_external_id` ON `users` (`issuer`, `external_id`);
-- create index "user_fan_out_mode" to table: "users"
CREATE INDEX `user_fan_out_mode` ON `users` (`fan_out_mode`);
-- create index "user_unindexed" to table: "users"
CREATE INDEX `user_unindexed` ON `users` (`id`) WHERE indexed_as IS DISTINCT FROM (handle || ' ' || name);
-- create "user_data" table
CREATE TABLE `user_data` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `data` text NOT NULL, `user_id` integer NOT NULL, CONSTRAINT `user_data_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "userdata_user_id" to table: "user_data"
CREATE UNIQUE INDEX `userdata_user_id` ON `user_data` (`user_id`);
-- create "user_delta" table
CREATE TABLE `user_delta` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `followers` integer NOT NULL DEFAULT (0), `following` integer NOT NULL DEFAULT (0), `user_id` integer NOT NULL, CONSTRAINT `user_delta_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "userdelta_user_id" to table: "user_delta"
CREATE INDEX `userdelta_user_id` ON `user_delta` (`user_id`);
-- create "user_words" table
CREATE TABLE `user_words` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `word` blob NOT NULL, `user_id` integer NOT NULL, CONSTRAINT `user_words_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "userword_word_user_id" to table: "user_words"
CREATE UNIQUE INDEX `userword_word_user_id` ON `user_words` (`word`, `user_id`);
-- create index "userword_user_id_word" to table: "user_words"
CREATE INDEX `userword_user_id_word` ON `user_words` (`user_id`, `word`);
-- create "webhook_deliveries" table
CREATE TABLE `webhook_deliveries` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `endpoint_id` integer NOT NULL, `message` text NOT NULL, `type` text NOT NULL, `subject` text NOT NULL, `body` text NOT NULL, `state` text NOT NULL, `attempts` integer NOT NULL DEFAULT (0), `status` integer NOT NULL DEFAULT (0), `last_error` text NOT NULL DEFAULT (''), `claim` integer NOT NULL DEFAULT (0), `due_at` integer NOT NULL, `created_at` integer NOT NULL, `retry_since` integer NOT NULL, `ended_at` integer NOT NULL DEFAULT (0));
-- create index "webhookdelivery_endpoint_id_state_due_at_id" to table: "webhook_deliveries"
CREATE INDEX `webhookdelivery_endpoint_id_state_due_at_id` ON `webhook_deliveries` (`endpoint_id`, `state`, `due_at`, `id`);
-- create index "webhookdelivery_endpoint_id_subject_state_id" to table: "webhook_deliveries"
CREATE INDEX `webhookdelivery_endpoint_id_subject_state_id` ON `webhook_deliveries` (`endpoint_id`, `subject`, `state`, `id`);
-- create index "webhookdelivery_state_ended_at" to table: "webhook_deliveries"
CREATE INDEX `webhookdelivery_state_ended_at` ON `webhook_deliveries` (`state`, `ended_at`);
-- create "webhook_endpoints" table
CREATE TABLE `webhook_endpoints` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `url` text NOT NULL, `types` text NOT NULL, `secrets` text NOT NULL, `created_at` integer NOT NULL, `disabled_at` integer NOT NULL DEFAULT (0), `disabled_why` text NOT NULL DEFAULT (''));
-- create "writers" table
CREATE TABLE `writers` (`id` integer NOT NULL, `holder` text NOT NULL DEFAULT (''), `until` integer NOT NULL DEFAULT (0), PRIMARY KEY (`id`));

-- rows of "audit_entries" are inserted, and nothing else
-- +goose StatementBegin
CREATE TRIGGER `audit_entries_no_update` BEFORE UPDATE ON `audit_entries` BEGIN SELECT RAISE(ABORT, 'audit_entries is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER `audit_entries_no_delete` BEFORE DELETE ON `audit_entries` BEGIN SELECT RAISE(ABORT, 'audit_entries is append-only'); END;
-- +goose StatementEnd
-- INSERT OR REPLACE deletes a row without asking the trigger of deletions.
-- +goose StatementBegin
CREATE TRIGGER `audit_entries_no_replace` BEFORE INSERT ON `audit_entries` WHEN EXISTS (SELECT 1 FROM `audit_entries` WHERE `id` = NEW.`id`) BEGIN SELECT RAISE(ABORT, 'audit_entries is append-only'); END;
-- +goose StatementEnd

-- +goose Down
-- reverse: create "writers" table
DROP TABLE `writers`;
-- reverse: create "webhook_endpoints" table
DROP TABLE `webhook_endpoints`;
-- reverse: create index "webhookdelivery_state_ended_at" to table: "webhook_deliveries"
DROP INDEX `webhookdelivery_state_ended_at`;
-- reverse: create index "webhookdelivery_endpoint_id_subject_state_id" to table: "webhook_deliveries"
DROP INDEX `webhookdelivery_endpoint_id_subject_state_id`;
-- reverse: create index "webhookdelivery_endpoint_id_state_due_at_id" to table: "webhook_deliveries"
DROP INDEX `webhookdelivery_endpoint_id_state_due_at_id`;
-- reverse: create "webhook_deliveries" table
DROP TABLE `webhook_deliveries`;
-- reverse: create index "userword_user_id_word" to table: "user_words"
DROP INDEX `userword_user_id_word`;
-- reverse: create index "userword_word_user_id" to table: "user_words"
DROP INDEX `userword_word_user_id`;
-- reverse: create "user_words" table
DROP TABLE `user_words`;
-- reverse: create index "userdelta_user_id" to table: "user_delta"
DROP INDEX `userdelta_user_id`;
-- reverse: create "user_delta" table
DROP TABLE `user_delta`;
-- reverse: create index "userdata_user_id" to table: "user_data"
DROP INDEX `userdata_user_id`;
-- reverse: create "user_data" table
DROP TABLE `user_data`;
-- reverse: create index "user_unindexed" to table: "users"
DROP INDEX `user_unindexed`;
-- reverse: create index "user_fan_out_mode" to table: "users"
DROP INDEX `user_fan_out_mode`;
-- reverse: create index "user_issuer_external_id" to table: "users"
DROP INDEX `user_issuer_external_id`;
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
-- reverse: create index "report_status_id" to table: "reports"
DROP INDEX `report_status_id`;
-- reverse: create index "report_reported_id_post_id_status" to table: "reports"
DROP INDEX `report_reported_id_post_id_status`;
-- reverse: create index "report_reporter_id_status" to table: "reports"
DROP INDEX `report_reporter_id_status`;
-- reverse: create "reports" table
DROP TABLE `reports`;
-- reverse: create "read_markers" table
DROP TABLE `read_markers`;
-- reverse: create index "process_seen_at" to table: "processes"
DROP INDEX `process_seen_at`;
-- reverse: create "processes" table
DROP TABLE `processes`;
-- reverse: create index "postversion_post_id_id" to table: "post_versions"
DROP INDEX `postversion_post_id_id`;
-- reverse: create "post_versions" table
DROP TABLE `post_versions`;
-- reverse: create index "posttag_post_id" to table: "post_tags"
DROP INDEX `posttag_post_id`;
-- reverse: create index "posttag_tag_post_id" to table: "post_tags"
DROP INDEX `posttag_tag_post_id`;
-- reverse: create "post_tags" table
DROP TABLE `post_tags`;
-- reverse: create index "postdelta_post_id" to table: "post_delta"
DROP INDEX `postdelta_post_id`;
-- reverse: create "post_delta" table
DROP TABLE `post_delta`;
-- reverse: create index "postdata_post_id" to table: "post_data"
DROP INDEX `postdata_post_id`;
-- reverse: create "post_data" table
DROP TABLE `post_data`;
-- reverse: create index "post_author_id_edited_at" to table: "posts"
DROP INDEX `post_author_id_edited_at`;
-- reverse: create index "post_author_id_visibility_id" to table: "posts"
DROP INDEX `post_author_id_visibility_id`;
-- reverse: create index "post_author_id_id" to table: "posts"
DROP INDEX `post_author_id_id`;
-- reverse: create "posts" table
DROP TABLE `posts`;
-- reverse: create index "mutedword_head_user_id" to table: "muted_words"
DROP INDEX `mutedword_head_user_id`;
-- reverse: create index "mutedword_user_id_word" to table: "muted_words"
DROP INDEX `mutedword_user_id_word`;
-- reverse: create "muted_words" table
DROP TABLE `muted_words`;
-- reverse: create index "mute_muter_id_id_muted_id" to table: "mutes"
DROP INDEX `mute_muter_id_id_muted_id`;
-- reverse: create index "mute_muted_id_id_muter_id" to table: "mutes"
DROP INDEX `mute_muted_id_id_muter_id`;
-- reverse: create index "mute_muter_id_muted_id" to table: "mutes"
DROP INDEX `mute_muter_id_muted_id`;
-- reverse: create "mutes" table
DROP TABLE `mutes`;
-- reverse: create index "like_user_id_id_post_id" to table: "likes"
DROP INDEX `like_user_id_id_post_id`;
-- reverse: create index "like_post_id_user_id" to table: "likes"
DROP INDEX `like_post_id_user_id`;
-- reverse: create "likes" table
DROP TABLE `likes`;
-- reverse: create index "job_changes" to table: "jobs"
DROP INDEX `job_changes`;
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
-- reverse: create index "hiddenuser_identity" to table: "hidden_users"
DROP INDEX `hiddenuser_identity`;
-- reverse: create index "hiddenuser_due_at" to table: "hidden_users"
DROP INDEX `hiddenuser_due_at`;
-- reverse: create "hidden_users" table
DROP TABLE `hidden_users`;
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
-- reverse: create index "externalpost_post_id" to table: "external_posts"
DROP INDEX `externalpost_post_id`;
-- reverse: create index "externalpost_issuer_external_id" to table: "external_posts"
DROP INDEX `externalpost_issuer_external_id`;
-- reverse: create "external_posts" table
DROP TABLE `external_posts`;
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
-- reverse: create "audit_entries" table
DROP TABLE `audit_entries`;
-- reverse: create "api_keys" table
DROP TABLE `api_keys`;
