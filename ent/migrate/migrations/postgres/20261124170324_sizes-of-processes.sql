-- +goose Up
-- modify "processes" table
ALTER TABLE "processes" ADD COLUMN "sizes" jsonb NULL, ADD COLUMN "wanted_sizes" jsonb NULL;

-- +goose Down
-- reverse: modify "processes" table
ALTER TABLE "processes" DROP COLUMN "wanted_sizes", DROP COLUMN "sizes";
