-- +goose Up
-- modify "reports" table
ALTER TABLE "reports" ADD COLUMN "unseen" boolean NOT NULL DEFAULT false;

-- +goose Down
-- reverse: modify "reports" table
ALTER TABLE "reports" DROP COLUMN "unseen";
