-- +goose Up
-- modify "hidden_users" table
ALTER TABLE "hidden_users" ADD COLUMN "suspended_until" timestamptz NULL;

-- +goose Down
-- reverse: modify "hidden_users" table
ALTER TABLE "hidden_users" DROP COLUMN "suspended_until";
