-- +goose Up
-- modify "audit_entries" table
ALTER TABLE "audit_entries" ADD COLUMN "details" jsonb NULL;

-- +goose Down
-- reverse: modify "audit_entries" table
ALTER TABLE "audit_entries" DROP COLUMN "details";
