-- +goose Up
-- create "external_posts" table
CREATE TABLE `external_posts` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `issuer` text NOT NULL, `external_id` blob NOT NULL, `post_id` integer NOT NULL, CONSTRAINT `external_posts_posts_post` FOREIGN KEY (`post_id`) REFERENCES `posts` (`id`) ON DELETE CASCADE);
-- create index "externalpost_issuer_external_id" to table: "external_posts"
CREATE UNIQUE INDEX `externalpost_issuer_external_id` ON `external_posts` (`issuer`, `external_id`);
-- create index "externalpost_post_id" to table: "external_posts"
CREATE INDEX `externalpost_post_id` ON `external_posts` (`post_id`);

-- +goose Down
-- reverse: create index "externalpost_post_id" to table: "external_posts"
DROP INDEX `externalpost_post_id`;
-- reverse: create index "externalpost_issuer_external_id" to table: "external_posts"
DROP INDEX `externalpost_issuer_external_id`;
-- reverse: create "external_posts" table
DROP TABLE `external_posts`;
