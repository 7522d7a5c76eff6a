-- +goose Up
-- create "muted_conversations" table
CREATE TABLE `muted_conversations` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `root_id` integer NOT NULL, `unseen` bool NOT NULL DEFAULT (false), `created_at` datetime NOT NULL, `user_id` integer NOT NULL, CONSTRAINT `muted_conversations_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "mutedconversation_user_id_root_id" to table: "muted_conversations"
CREATE UNIQUE INDEX `mutedconversation_user_id_root_id` ON `muted_conversations` (`user_id`, `root_id`);

-- +goose Down
-- reverse: create index "mutedconversation_user_id_root_id" to table: "muted_conversations"
DROP INDEX `mutedconversation_user_id_root_id`;
-- reverse: create "muted_conversations" table
DROP TABLE `muted_conversations`;
