-- +goose Up
-- add column "role" to table: "users"
ALTER TABLE `users` ADD COLUMN `role` text NOT NULL DEFAULT ('USER');
-- create "audit_entries" table
CREATE TABLE `audit_entries` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `actor_id` integer NOT NULL, `action` text NOT NULL, `subject_kind` text NOT NULL, `subject_id` integer NOT NULL, `note` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL);
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
-- reverse: create "audit_entries" table
DROP TRIGGER `audit_entries_no_replace`;
DROP TRIGGER `audit_entries_no_delete`;
DROP TRIGGER `audit_entries_no_update`;
DROP TABLE `audit_entries`;
-- reverse: add column "role" to table: "users"
ALTER TABLE `users` DROP COLUMN `role`;
