-- +goose Up
-- modify "muted_words" table
ALTER TABLE "muted_words" ADD COLUMN "form" bigint NOT NULL DEFAULT 0;

-- +goose Down
-- reverse: modify "muted_words" table
ALTER TABLE "muted_words" DROP COLUMN "form";
