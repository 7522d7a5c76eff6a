-- tideline: contract
-- +goose Up
-- the indexes that used it are gone
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
