-- +goose Up
-- create "muted_words" table
CREATE TABLE `muted_words` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `word` text NOT NULL, `head` text NOT NULL, `created_at` datetime NOT NULL, `user_id` integer NOT NULL, CONSTRAINT `muted_words_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "mutedword_user_id_word" to table: "muted_words"
CREATE UNIQUE INDEX `mutedword_user_id_word` ON `muted_words` (`user_id`, `word`);
-- create index "mutedword_head_user_id" to table: "muted_words"
CREATE INDEX `mutedword_head_user_id` ON `muted_words` (`head`, `user_id`);

-- +goose Down
-- reverse: create index "mutedword_head_user_id" to table: "muted_words"
DROP INDEX `mutedword_head_user_id`;
-- reverse: create index "mutedword_user_id_word" to table: "muted_words"
DROP INDEX `mutedword_user_id_word`;
-- reverse: create "muted_words" table
DROP TABLE `muted_words`;
