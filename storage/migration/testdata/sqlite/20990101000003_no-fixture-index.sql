-- tideline: contract
-- +goose Up
DROP INDEX IF EXISTS `user_fixture_before`;

-- +goose Down
CREATE INDEX `user_fixture_before` ON `users` (`role`, `handle`);
