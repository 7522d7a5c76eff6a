-- +goose Up
-- SQLite has no index of the parts of a text: a search reads the users.
SELECT 1;

-- +goose Down
SELECT 1;
