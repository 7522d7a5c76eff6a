-- +goose Up
-- modify "posts" table
ALTER TABLE "posts" ADD COLUMN "parent_id" bigint NULL, ADD COLUMN "parent_author_id" bigint NULL, ADD COLUMN "root_id" bigint NULL, ADD COLUMN "repost_of" bigint NULL, ADD COLUMN "quote_of" bigint NULL, ADD COLUMN "quote_withdrawn" boolean NOT NULL DEFAULT false, ADD COLUMN "reply_audience" character varying NULL, ADD COLUMN "quote_audience" character varying NULL, ADD COLUMN "changed_at" bigint NOT NULL DEFAULT 0, ADD COLUMN "reply_count" bigint NOT NULL DEFAULT 0, ADD COLUMN "repost_count" bigint NOT NULL DEFAULT 0, ADD COLUMN "quote_count" bigint NOT NULL DEFAULT 0;

-- +goose Down
-- reverse: modify "posts" table
ALTER TABLE "posts" DROP COLUMN "quote_count", DROP COLUMN "repost_count", DROP COLUMN "reply_count", DROP COLUMN "changed_at", DROP COLUMN "quote_audience", DROP COLUMN "reply_audience", DROP COLUMN "quote_withdrawn", DROP COLUMN "quote_of", DROP COLUMN "repost_of", DROP COLUMN "root_id", DROP COLUMN "parent_author_id", DROP COLUMN "parent_id";
