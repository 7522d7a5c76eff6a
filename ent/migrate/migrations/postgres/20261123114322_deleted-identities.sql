-- +goose Up
-- modify "hidden_users" table
ALTER TABLE "hidden_users" ADD COLUMN "identity" bytea NULL;
-- create index "hiddenuser_identity" to table: "hidden_users"
CREATE INDEX "hiddenuser_identity" ON "hidden_users" ("identity");

-- +goose Down
-- reverse: create index "hiddenuser_identity" to table: "hidden_users"
DROP INDEX "hiddenuser_identity";
-- reverse: modify "hidden_users" table
ALTER TABLE "hidden_users" DROP COLUMN "identity";
