-- +goose Up
-- room for the next version of a row beside it: one elsewhere is a change of all indexes
ALTER TABLE "users" SET (fillfactor = 70);
-- the characters of a text, if shortest is 1, and all pairs that follow each other, in lower case
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

-- +goose Down
ALTER TABLE "users" RESET (fillfactor);
DROP FUNCTION "parts_of_text"(text, int);
