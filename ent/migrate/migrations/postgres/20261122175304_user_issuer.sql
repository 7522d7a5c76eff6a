-- +goose Up
-- modify "sessions" table
ALTER TABLE "sessions" ADD COLUMN "tokens_since" timestamptz NULL;
-- modify "users" table
ALTER TABLE "users" ADD COLUMN "issuer" character varying NULL, ADD COLUMN "external_id" bytea NULL, ADD COLUMN "signed_out_before" timestamptz NULL;
-- create index "user_issuer_external_id" to table: "users"
CREATE UNIQUE INDEX "user_issuer_external_id" ON "users" ("issuer", "external_id");

-- +goose Down
-- reverse: create index "user_issuer_external_id" to table: "users"
DROP INDEX "user_issuer_external_id";
-- reverse: modify "users" table
ALTER TABLE "users" DROP COLUMN "signed_out_before", DROP COLUMN "external_id", DROP COLUMN "issuer";
-- reverse: modify "sessions" table
ALTER TABLE "sessions" DROP COLUMN "tokens_since";
