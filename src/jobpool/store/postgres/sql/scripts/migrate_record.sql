
BEGIN;
INSERT INTO {schema}.meta (name, value) VALUES ('schema_version', {version})
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
DELETE FROM {schema}.meta WHERE name = 'expanded';
COMMIT;
