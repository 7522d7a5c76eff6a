-- tideline: contract
-- +goose NO TRANSACTION
-- +goose Up
-- versions before search users by these
DROP INDEX CONCURRENTLY IF EXISTS "user_handle_beginning";
DROP INDEX CONCURRENTLY IF EXISTS "user_name_parts";
DROP FUNCTION IF EXISTS "parts_of_text"(text, int);

-- +goose Down
-- +goose StatementBegin
CREATE FUNCTION "parts_of_text"("whole" text, "shortest" int) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE low text := lower(whole); parts text[] := '{}';
BEGIN
  FOR i IN 1..length(low) LOOP
    IF shortest = 1 THEN parts := parts || substr(low, i, 1); END IF;
    IF i < length(low) THEN parts := parts || substr(low, i, 2); END IF;
  END LOOP;
  RETURN parts;
END $$;
-- +goose StatementEnd
CREATE INDEX CONCURRENTLY "user_name_parts" ON "users" USING gin ("parts_of_text"("name", 1) COLLATE "C");
CREATE INDEX CONCURRENTLY "user_handle_beginning" ON "users" (("handle"::text) text_pattern_ops);
