-- +goose Up
-- create "webhook_deliveries" table
CREATE TABLE `webhook_deliveries` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `endpoint_id` integer NOT NULL, `message` text NOT NULL, `type` text NOT NULL, `subject` text NOT NULL, `body` text NOT NULL, `visibility` text NULL, `author_issuer` text NULL, `author_external_id` blob NULL, `state` text NOT NULL, `attempts` integer NOT NULL DEFAULT (0), `status` integer NOT NULL DEFAULT (0), `last_error` text NOT NULL DEFAULT (''), `claim` integer NOT NULL DEFAULT (0), `due_at` integer NOT NULL, `created_at` integer NOT NULL, `retry_since` integer NOT NULL, `ended_at` integer NOT NULL DEFAULT (0));
-- create index "webhookdelivery_endpoint_id_state_due_at_id" to table: "webhook_deliveries"
CREATE INDEX `webhookdelivery_endpoint_id_state_due_at_id` ON `webhook_deliveries` (`endpoint_id`, `state`, `due_at`, `id`);
-- create index "webhookdelivery_endpoint_id_subject_state_id" to table: "webhook_deliveries"
CREATE INDEX `webhookdelivery_endpoint_id_subject_state_id` ON `webhook_deliveries` (`endpoint_id`, `subject`, `state`, `id`);
-- create index "webhookdelivery_state_ended_at" to table: "webhook_deliveries"
CREATE INDEX `webhookdelivery_state_ended_at` ON `webhook_deliveries` (`state`, `ended_at`);
-- create "webhook_endpoints" table
CREATE TABLE `webhook_endpoints` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `url` text NOT NULL, `types` text NOT NULL, `secrets` text NOT NULL, `created_at` integer NOT NULL, `disabled_at` integer NOT NULL DEFAULT (0), `disabled_why` text NOT NULL DEFAULT (''));

-- +goose Down
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
