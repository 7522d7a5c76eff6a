-- +goose Up
-- modify "users" table
ALTER TABLE "users" ADD COLUMN "home_replies" character varying NOT NULL DEFAULT 'FOLLOWED';

-- +goose Down
-- reverse: modify "users" table
ALTER TABLE "users" DROP COLUMN "home_replies";
