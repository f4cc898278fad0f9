-- What the server has room for, for `jobpool doctor`. Each is cheap and changes nothing.

-- name: connections
-- What may be used, by server, role and database (-1: no limit of its own); what is
-- used, by all and by jobpool; and how many supervisors live. Without the right to see
-- other sessions their type is NULL.
SELECT
  current_setting('max_connections')::bigint
  - current_setting('superuser_reserved_connections')::bigint
  - coalesce(current_setting('reserved_connections', true)::bigint, 0),
  (SELECT rolconnlimit::bigint FROM pg_roles WHERE rolname = current_user),
  (SELECT datconnlimit::bigint FROM pg_database WHERE datname = current_database()),
  count(*),
  count(*) FILTER (WHERE application_name = 'jobpool'),
  (
    SELECT count(*)
    FROM jobpool.runs
    WHERE ended_at_ms IS NULL
      AND lease_until_ms > coalesce(
        %(now_ms)s::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
      )
  )
FROM pg_stat_activity
WHERE coalesce(backend_type, 'client backend') = 'client backend'
  AND usesysid IS NOT NULL

-- name: table_sizes
-- Bytes of each table with its large values, without its indexes; the largest first.
SELECT c.relname::text, pg_table_size(c.oid)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s::text AND c.relkind = 'r'
ORDER BY pg_table_size(c.oid) DESC, c.relname

-- name: index_sizes
-- The largest first.
SELECT c.relname::text, pg_relation_size(c.oid)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s::text AND c.relkind = 'i'
ORDER BY pg_relation_size(c.oid) DESC, c.relname

-- name: cache_hits
-- Blocks of our tables and indexes that were found in the server's memory and that were
-- not; and the size of that memory.
SELECT
  coalesce(sum(heap_blks_hit + idx_blks_hit), 0)::bigint,
  coalesce(sum(heap_blks_read + idx_blks_read), 0)::bigint,
  (SELECT setting::bigint * 8192 FROM pg_settings WHERE name = 'shared_buffers')
FROM pg_statio_all_tables
WHERE schemaname = %(schema)s::text

-- name: lock_waits
-- Sessions of this database that wait for a lock, the longest first, each with one that
-- holds it.
SELECT
  pid::bigint,
  coalesce(application_name, ''),
  extract(epoch FROM clock_timestamp() - query_start)::double precision,
  coalesce((pg_blocking_pids(pid))[1], 0)::bigint
FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
ORDER BY 3 DESC

-- name: deadlocks
-- Of this database, since its statistics began.
SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()

-- name: little_work_mem
-- For this transaction.
SELECT set_config('work_mem', '64kB', true)

-- name: spill
-- Sorts more than that, so that the server writes it to a file; says how much.
SELECT sum(length(filler))::bigint
FROM (
  SELECT repeat(md5(n::text), 64) AS filler
  FROM generate_series(1, 256) AS n
  ORDER BY n DESC
  OFFSET 0
) AS sorted
