-- +goose Up
-- modify "reports" table
ALTER TABLE "reports" ADD COLUMN "parent_id" bigint NOT NULL DEFAULT 0, ADD COLUMN "root_id" bigint NOT NULL DEFAULT 0;

-- +goose Down
-- reverse: modify "reports" table
ALTER TABLE "reports" DROP COLUMN "root_id", DROP COLUMN "parent_id";
