-- +goose Up
-- modify "post_delta" table
ALTER TABLE "post_delta" ADD COLUMN "replies" bigint NOT NULL DEFAULT 0, ADD COLUMN "reposts" bigint NOT NULL DEFAULT 0, ADD COLUMN "quotes" bigint NOT NULL DEFAULT 0;

-- +goose Down
-- reverse: modify "post_delta" table
ALTER TABLE "post_delta" DROP COLUMN "quotes", DROP COLUMN "reposts", DROP COLUMN "replies";
