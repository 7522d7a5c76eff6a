-- +goose Up
CREATE INDEX `user_fixture` ON `users` (`role`);

-- +goose Down
DROP INDEX `user_fixture`;
