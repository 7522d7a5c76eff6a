-- +goose Up
-- modify "audit_entries" table
ALTER TABLE "audit_entries" ADD COLUMN "key_id" bigint NOT NULL DEFAULT 0;

-- +goose Down
-- reverse: modify "audit_entries" table
ALTER TABLE "audit_entries" DROP COLUMN "key_id";
