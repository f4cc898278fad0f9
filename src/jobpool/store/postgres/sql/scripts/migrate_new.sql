
BEGIN;
CREATE SCHEMA IF NOT EXISTS {schema};
{scripts}
INSERT INTO {schema}.meta (name, value) VALUES ('schema_version', {version});
COMMIT;
