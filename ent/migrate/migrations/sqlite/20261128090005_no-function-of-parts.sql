-- tideline: contract
-- +goose Up
-- SQLite had no function of the parts of a text.
SELECT 1;

-- +goose Down
SELECT 1;
