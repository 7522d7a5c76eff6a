-- +goose Up
-- create "processes" table
CREATE TABLE `processes` (`id` integer NOT NULL, `host` text NOT NULL, `pid` integer NOT NULL, `version` text NOT NULL, `roles` text NOT NULL, `started_at` datetime NOT NULL, `seen_at` datetime NOT NULL, `subscriptions` integer NOT NULL, `jobs` integer NOT NULL, `paused` bool NOT NULL, `wanted` text NOT NULL DEFAULT ('run'), PRIMARY KEY (`id`));
-- create index "process_seen_at" to table: "processes"
CREATE INDEX `process_seen_at` ON `processes` (`seen_at`);

-- +goose Down
-- reverse: create index "process_seen_at" to table: "processes"
DROP INDEX `process_seen_at`;
-- reverse: create "processes" table
DROP TABLE `processes`;
