-- +goose Up
-- modify "sessions" table
ALTER TABLE "sessions" ADD COLUMN "user_agent" character varying NOT NULL DEFAULT '';
-- modify "users" table
ALTER TABLE "users" ADD COLUMN "hidden" boolean NOT NULL DEFAULT false;
-- create "hidden_users" table
CREATE TABLE "hidden_users" ("id" bigint NOT NULL, "state" character varying NOT NULL, "due_at" timestamptz NOT NULL, PRIMARY KEY ("id"));
-- create index "hiddenuser_due_at" to table: "hidden_users"
CREATE INDEX "hiddenuser_due_at" ON "hidden_users" ("due_at");

-- +goose Down
-- reverse: create index "hiddenuser_due_at" to table: "hidden_users"
DROP INDEX "hiddenuser_due_at";
-- reverse: create "hidden_users" table
DROP TABLE "hidden_users";
-- reverse: modify "users" table
ALTER TABLE "users" DROP COLUMN "hidden";
-- reverse: modify "sessions" table
ALTER TABLE "sessions" DROP COLUMN "user_agent";
