-- +goose Up
-- create "api_keys" table
CREATE TABLE `api_keys` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `name` text NOT NULL, `issuer` text NOT NULL DEFAULT (''), `scopes` text NOT NULL, `secret_hash` blob NOT NULL, `created_at` datetime NOT NULL, `last_used_at` datetime NULL, `revoked_at` datetime NULL);

-- +goose Down
-- reverse: create "api_keys" table
DROP TABLE `api_keys`;
