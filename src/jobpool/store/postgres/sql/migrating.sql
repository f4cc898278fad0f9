-- Migrating a store that is in use, from a connection of its own.

-- name: migration_session
-- Statements may take hours, and wait for whoever is in the way of none of the others.
SELECT
  set_config('statement_timeout', '0', false),
  set_config('lock_timeout', '0', false),
  set_config('idle_in_transaction_session_timeout', '30s', false)

-- name: migration_turn
-- One at a time, until the connection ends. Never waits: whoever waited would hold a
-- snapshot, and CREATE INDEX CONCURRENTLY waits for those. Not the lock of new stores:
-- older clients, which take that when they start, must not wait for an index.
SELECT pg_try_advisory_lock(1785684593, hashtext(%(schema)s::text))

-- name: migration_limit
-- For this transaction: how long a statement may take, and how long it may wait.
SELECT
  set_config('statement_timeout', %(statement_ms)s::text, true),
  set_config('lock_timeout', %(lock_ms)s::text, true)

-- name: forget_expanded
-- The step is done.
DELETE FROM jobpool.meta WHERE name = 'expanded'

-- name: index_is_valid
-- No row: there is none.
SELECT i.indisvalid
FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s::text AND c.relname = %(name)s::text

-- name: constraint_is_valid
-- No row: there is none.
SELECT c.convalidated
FROM pg_catalog.pg_constraint AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.connamespace
WHERE n.nspname = %(schema)s::text AND c.conname = %(name)s::text

-- name: users_of_tables
-- Sessions that have used a table of ours for more than half a second: process, application,
-- state, seconds.
SELECT DISTINCT
  a.pid,
  a.application_name,
  a.state,
  extract(epoch FROM statement_timestamp() - a.xact_start)::double precision
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE n.nspname = %(schema)s::text
  AND l.granted
  AND a.pid <> pg_backend_pid()
  AND a.xact_start < statement_timestamp() - interval '500 ms'
ORDER BY 4 DESC
LIMIT 3

-- name: table_size
-- Rows by the statistics, and bytes of the table itself, without its indexes.
SELECT greatest(c.reltuples, 0)::bigint, pg_table_size(c.oid)
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s::text AND c.relname = %(name)s::text
