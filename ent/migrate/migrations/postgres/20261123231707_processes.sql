-- +goose Up
-- create "processes" table
CREATE TABLE "processes" ("id" bigint NOT NULL, "host" character varying NOT NULL, "pid" bigint NOT NULL, "version" character varying NOT NULL, "roles" character varying NOT NULL, "started_at" timestamptz NOT NULL, "seen_at" timestamptz NOT NULL, "subscriptions" bigint NOT NULL, "jobs" bigint NOT NULL, "paused" boolean NOT NULL, "wanted" character varying NOT NULL DEFAULT 'run', PRIMARY KEY ("id"));
-- create index "process_seen_at" to table: "processes"
CREATE INDEX "process_seen_at" ON "processes" ("seen_at");

-- +goose Down
-- reverse: create index "process_seen_at" to table: "processes"
DROP INDEX "process_seen_at";
-- reverse: create "processes" table
DROP TABLE "processes";
