-- +goose Up
-- add column "indexed_as" to table: "users"
ALTER TABLE `users` ADD COLUMN `indexed_as` text NULL;
-- create "user_words" table
CREATE TABLE `user_words` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `word` blob NOT NULL, `user_id` integer NOT NULL, CONSTRAINT `user_words_users_user` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "userword_word_user_id" to table: "user_words"
CREATE UNIQUE INDEX `userword_word_user_id` ON `user_words` (`word`, `user_id`);
-- create index "userword_user_id_word" to table: "user_words"
CREATE INDEX `userword_user_id_word` ON `user_words` (`user_id`, `word`);

-- +goose Down
-- reverse: create index "userword_user_id_word" to table: "user_words"
DROP INDEX `userword_user_id_word`;
-- reverse: create index "userword_word_user_id" to table: "user_words"
DROP INDEX `userword_word_user_id`;
-- reverse: create "user_words" table
DROP TABLE `user_words`;
-- reverse: add column "indexed_as" to table: "users"
ALTER TABLE `users` DROP COLUMN `indexed_as`;
