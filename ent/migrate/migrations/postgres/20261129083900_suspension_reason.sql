-- +goose Up
-- modify "hidden_users" table
ALTER TABLE "hidden_users" ADD COLUMN "reason" text NOT NULL DEFAULT '';

-- +goose Down
-- reverse: modify "hidden_users" table
ALTER TABLE "hidden_users" DROP COLUMN "reason";
