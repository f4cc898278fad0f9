-- Connections, transactions, and facts about the database.

-- name: about
-- Facts about the server and the session, checked before they are used. The session does
-- not compile its statements, as in `begun`: also those outside of a transaction. Another
-- process than the one that answered the login is a pooler's, whose sessions have others.
SELECT
  current_setting('server_version_num')::integer,
  pg_is_in_recovery(),
  current_setting('transaction_read_only') = 'on',
  current_setting('server_encoding'),
  pg_backend_pid(),
  quote_ident(%(schema)s::text) = %(schema)s::text,
  CASE
    WHEN pg_backend_pid() = %(backend)s::integer THEN set_config('jit', 'off', false)
  END

-- name: now
-- The store's clock: now() does not advance within a transaction.
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: begin
-- Sent ahead of the first query, with what follows.
BEGIN

-- name: begun
-- The store's clock, and settings for this transaction only: a session's settings would
-- be lost behind a pooler. Our statements find rows by an index, whatever the statistics
-- say: the planner is offered nothing else. What it has to do all the same, such as to read
-- a table of three rows, counts as very expensive, and would be compiled each time (jit).
--
-- With the transaction's number, the timeline, and the start of the statistics, the
-- outcome of a commit whose answer was lost can be found (outcome_of).
SELECT
  floor(extract(epoch FROM now()) * 1000)::bigint,
  pg_current_xact_id()::text,
  pg_walfile_name(pg_current_wal_lsn()),
  (SELECT stats_reset::text FROM pg_stat_bgwriter),
  concat(
    set_config('statement_timeout', '20s', true),
    set_config('lock_timeout', '3s', true),
    set_config('idle_in_transaction_session_timeout', '30s', true),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true),
    set_config('jit', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true)
  )

-- name: plan_anew
-- For the rest of this transaction. Most statements are planned each time: a plan made
-- while the table was small would later scan all of it.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true)

-- name: listen
-- The channel has the schema's name, so that queues do not wake each other's supervisors.
LISTEN "jobpool.wake"

-- name: savepoint
-- One method within a transaction.
SAVEPOINT jobpool_step

-- name: release
-- The method has succeeded.
RELEASE SAVEPOINT jobpool_step

-- name: rollback_to
-- The method has failed: it has changed nothing.
ROLLBACK TO SAVEPOINT jobpool_step

-- name: commit
-- Nothing is permanent before this.
COMMIT

-- name: rollback
-- Nothing happened.
ROLLBACK

-- name: outcome_of
-- The status of a transaction whose commit was not answered, the timeline now, and when
-- the statistics began: they survive a restart, but start again after a crash.
SELECT
  pg_xact_status(%(xid)s::text::xid8),
  pg_walfile_name(pg_current_wal_lsn()),
  stats_reset::text
FROM pg_stat_bgwriter

-- name: has_schema
-- Whether the schema exists, and whether it has the given table. Read from the catalog,
-- since to_regclass() may answer from a cache older than a lock that was waited for.
SELECT
  EXISTS (
    SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s::text
  ),
  EXISTS (
    SELECT 1
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s::text AND c.relname = %(table)s::text
  )

-- name: create_schema
-- Only if it is missing; needs CREATE on the database.
CREATE SCHEMA IF NOT EXISTS jobpool

-- name: migration_lock
-- One migration at a time in this database; released with the transaction.
SELECT set_config('lock_timeout', '20s', true), pg_advisory_xact_lock(1785684592, hashtext(%(schema)s::text))

-- name: schema_version
-- The migrations that have been run.
SELECT value FROM jobpool.meta WHERE name = 'schema_version'

-- name: set_counter
-- Of a migration: in the same transaction.
INSERT INTO jobpool.meta (name, value) VALUES (%(name)s, %(value)s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: counter
-- One of jobpool.meta's counters.
SELECT value FROM jobpool.meta WHERE name = %(name)s

-- name: wake
-- Outside of any transaction: its commit takes a lock on the whole database.
NOTIFY "jobpool.wake"

-- name: snapshot
-- Changes whenever anything is committed in this cluster.
SELECT pg_current_snapshot()::text

-- name: describe
-- For an operator.
SELECT
  current_setting('server_version'),
  current_database()::text,
  current_user::text,
  current_setting('synchronous_commit'),
  current_setting('fsync'),
  current_setting('autovacuum'),
  current_setting('max_connections'),
  pg_size_pretty(pg_database_size(current_database()))

-- name: table_health
-- Live and dead rows of the jobs by the statistics, and their size.
SELECT
  coalesce(n_live_tup, 0),
  coalesce(n_dead_tup, 0),
  pg_size_pretty(pg_total_relation_size('jobpool.jobs'))
FROM pg_stat_all_tables
WHERE relid = 'jobpool.jobs'::regclass

-- name: long_snapshots
-- What has kept dead rows from being removed for longer than :patience_s: sessions,
-- prepared transactions, replication slots. All by one moment, else the order is chance.
SELECT
  'session',
  format(
    'pid %%s (%%s, user %%s, application %%s)', pid, state, usename, application_name
  ),
  extract(epoch FROM statement_timestamp() - xact_start)::double precision
FROM pg_stat_activity
WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
  AND backend_type = 'client backend'
  AND pid <> pg_backend_pid()
  AND datid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND xact_start < statement_timestamp() - make_interval(secs => %(patience_s)s)
UNION ALL
SELECT
  'prepared transaction',
  gid,
  extract(epoch FROM statement_timestamp() - prepared)::double precision
FROM pg_prepared_xacts
WHERE database = current_database()
  AND prepared < statement_timestamp() - make_interval(secs => %(patience_s)s)
ORDER BY 3 DESC
LIMIT 5

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
SELECT pg_try_advisory_lock(1785684594, hashtext(%(schema)s::text))

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

-- name: set_read_only
-- Of a connection that only reads: a mistake cannot change anything.
SET default_transaction_read_only = on

-- name: set_lock_timeout
-- Whoever waits for a lock on a table makes all others wait behind it.
SET lock_timeout = '2s'

-- name: vacuum
-- Of the tables that hold what jobs bring along, and what they are counted by.
VACUUM (VERBOSE)
jobpool.jobs, jobpool.attempts, jobpool.outputs, jobpool.running, jobpool.audit,
jobpool.debounced, jobpool.lanes, jobpool.buckets, jobpool.shares, jobpool.share_notes

-- name: vacuum_full
-- Copies them: free room within pages, which may hold remains, is gone.
VACUUM (FULL, VERBOSE)
jobpool.jobs, jobpool.attempts, jobpool.outputs, jobpool.running, jobpool.audit,
jobpool.debounced, jobpool.lanes, jobpool.buckets, jobpool.shares, jobpool.share_notes
