
-- Step {version} of the schema.
BEGIN IMMEDIATE;
{script}
INSERT INTO jobpool_meta (name, value) VALUES ('schema_version', {version})
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
COMMIT;
