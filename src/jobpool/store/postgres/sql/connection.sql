-- Connections, transactions, and what the database says about itself.

-- name: about
-- What this server and session are, before anything is done with them.
SELECT
  current_setting('server_version_num')::integer,
  pg_is_in_recovery(),
  current_setting('transaction_read_only') = 'on',
  current_setting('server_encoding'),
  pg_backend_pid(),
  quote_ident(%(schema)s::text) = %(schema)s::text

-- name: now
-- The store's clock: now() would stand still within a transaction.
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: begin
-- Sent ahead of the first query, with what follows.
BEGIN

-- name: begun
-- The store's clock, and settings of this transaction only: those of a session would go
-- astray behind a pooler. Our statements look rows up by an index, whatever the
-- statistics say: nothing else is offered to the planner.
--
-- By the transaction's number, the timeline, and when the statistics began, the outcome
-- of a commit whose answer is lost is found out (outcome_of).
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
    set_config('plan_cache_mode', 'force_generic_plan', true)
  )

-- name: plan_anew
-- From here on in this transaction. Most statements are planned each time: with a plan
-- that was made while the table was small they would walk all of it later.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true)

-- name: listen
-- The channel carries the schema's name: another queue's rings are not ours.
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
-- The only point where anything becomes true.
COMMIT

-- name: rollback
-- Nothing happened.
ROLLBACK

-- name: outcome_of
-- Of a transaction whose commit was not answered; the timeline now, and when the
-- statistics began: they survive a restart, and begin anew after a crash.
SELECT
  pg_xact_status(%(xid)s::text::xid8),
  pg_walfile_name(pg_current_wal_lsn()),
  stats_reset::text
FROM pg_stat_bgwriter

-- name: has_schema
-- Whether the schema is there, and whether it has a table of jobpool's. From the catalog
-- itself: what to_regclass() remembers may be older than a lock that was waited for.
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
-- Only where it is missing, which needs CREATE on the database.
CREATE SCHEMA IF NOT EXISTS jobpool

-- name: migration_lock
-- One migration at a time in this database; gone with the transaction.
SELECT set_config('lock_timeout', '20s', true), pg_advisory_xact_lock(1785684592, hashtext(%(schema)s::text))

-- name: schema_version
-- The migrations that have been run.
SELECT value FROM jobpool.meta WHERE name = 'schema_version'

-- name: set_schema_version
-- In the same transaction as the migration.
INSERT INTO jobpool.meta (name, value) VALUES ('schema_version', %(version)s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: counter
-- One of jobpool.meta's counters.
SELECT value FROM jobpool.meta WHERE name = %(name)s

-- name: wake
-- Outside of any transaction: it takes a lock of the whole database at commit.
NOTIFY "jobpool.wake"

-- name: snapshot
-- Another text once anybody has committed anything in this cluster.
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
-- Live and dead row versions of the jobs as the statistics know them, and their size.
SELECT
  coalesce(n_live_tup, 0),
  coalesce(n_dead_tup, 0),
  pg_size_pretty(pg_total_relation_size('jobpool.jobs'))
FROM pg_stat_all_tables
WHERE relid = 'jobpool.jobs'::regclass

-- name: long_snapshots
-- Who keeps dead row versions from being removed for more than a minute: sessions,
-- prepared transactions, replication slots.
SELECT
  'session',
  format(
    'pid %%s (%%s, user %%s, application %%s)', pid, state, usename, application_name
  ),
  extract(epoch FROM clock_timestamp() - xact_start)::double precision
FROM pg_stat_activity
WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
  AND backend_type = 'client backend'
  AND pid <> pg_backend_pid()
  AND datid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND xact_start < clock_timestamp() - make_interval(secs => %(patience_s)s)
UNION ALL
SELECT
  'prepared transaction',
  gid,
  extract(epoch FROM clock_timestamp() - prepared)::double precision
FROM pg_prepared_xacts
WHERE database = current_database()
  AND prepared < clock_timestamp() - make_interval(secs => %(patience_s)s)
ORDER BY 3 DESC
LIMIT 5
