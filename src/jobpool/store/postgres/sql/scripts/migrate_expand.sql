
-- Step {version} of the schema. The tables are locked for some milliseconds. If they
-- cannot be had at once, nothing is changed: run the script again.
BEGIN;
SET LOCAL statement_timeout = {lock_ms};
{lock}
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = {lock_ms};
{expand}
INSERT INTO {schema}.meta (name, value) VALUES ('expanded', {version})
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
COMMIT;

