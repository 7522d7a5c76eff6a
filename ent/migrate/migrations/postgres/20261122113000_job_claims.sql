-- +goose Up
-- add the columns "claim" and "restart" to table: "jobs"
ALTER TABLE "jobs" ADD COLUMN "claim" bigint NOT NULL DEFAULT 0;
ALTER TABLE "jobs" ADD COLUMN "restart" boolean NOT NULL DEFAULT false;

-- +goose Down
-- reverse: add the columns "claim" and "restart" to table: "jobs"
ALTER TABLE "jobs" DROP COLUMN "restart";
ALTER TABLE "jobs" DROP COLUMN "claim";
