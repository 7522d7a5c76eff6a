-- +goose Up
-- create "reports" table
CREATE TABLE `reports` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `post_id` integer NOT NULL DEFAULT (0), `reason` text NOT NULL, `comment` text NOT NULL DEFAULT (''), `text` text NOT NULL DEFAULT (''), `status` text NOT NULL DEFAULT ('OPEN'), `claimed_by` integer NOT NULL DEFAULT (0), `claimed_until` integer NOT NULL DEFAULT (0), `decided_at` integer NOT NULL DEFAULT (0), `note` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `reporter_id` integer NOT NULL, `reported_id` integer NOT NULL, CONSTRAINT `reports_users_reporter` FOREIGN KEY (`reporter_id`) REFERENCES `users` (`id`) ON DELETE CASCADE, CONSTRAINT `reports_users_reported` FOREIGN KEY (`reported_id`) REFERENCES `users` (`id`) ON DELETE CASCADE);
-- create index "report_reporter_id_status" to table: "reports"
CREATE INDEX `report_reporter_id_status` ON `reports` (`reporter_id`, `status`);
-- create index "report_reported_id_post_id_status" to table: "reports"
CREATE INDEX `report_reported_id_post_id_status` ON `reports` (`reported_id`, `post_id`, `status`);
-- create index "report_status_id" to table: "reports"
CREATE INDEX `report_status_id` ON `reports` (`status`, `id`);

-- +goose Down
-- reverse: create index "report_status_id" to table: "reports"
DROP INDEX `report_status_id`;
-- reverse: create index "report_reported_id_post_id_status" to table: "reports"
DROP INDEX `report_reported_id_post_id_status`;
-- reverse: create index "report_reporter_id_status" to table: "reports"
DROP INDEX `report_reporter_id_status`;
-- reverse: create "reports" table
DROP TABLE `reports`;
