-- Observability is just SQL: these read well in the sqlite3 shell too.

-- A job with its result and the end of its lease, column by column as in
-- jobpool.core.jobs.job.Job.
CREATE VIEW jobpool_job_records AS
SELECT
  j.id,
  j.kind,
  j.pool,
  j.state,
  j.priority,
  j.key,
  j.unique_text,
  j.tenant,
  j.attempt,
  j.max_attempts,
  j.failures,
  j.crashes,
  j.interruptions,
  j.recoveries,
  j.timeout_s,
  j.memory_bytes,
  j.outcome,
  j.reason,
  j.error_class,
  j.error,
  CASE j.state
    WHEN 'succeeded' THEN coalesce(
      (SELECT r.result FROM jobpool_results AS r WHERE r.job_id = j.id),
      CAST('null' AS BLOB)
    )
  END AS result,
  j.progress,
  j.checkpoint,
  j.created_at_ms,
  j.run_at_ms,
  j.expires_at_ms,
  j.started_at_ms,
  j.finished_at_ms,
  j.last_heartbeat_at_ms,
  (
    SELECT r.lease_until_ms FROM jobpool_runs AS r WHERE r.id = j.supervisor
  ) AS lease_until_ms,
  j.cancel_requested,
  j.supervisor,
  j.slot,
  j.duration_s,
  j.cpu_s,
  j.peak_rss_bytes
FROM jobpool_jobs AS j;

-- Counts and mean seconds of waiting and running, by pool, kind and state.
CREATE VIEW jobpool_stats AS
SELECT
  pool,
  kind,
  state,
  count(*) AS jobs,
  avg((started_at_ms - run_at_ms) / 1000.0) AS mean_wait_s,
  avg(duration_s) AS mean_run_s
FROM jobpool_jobs
GROUP BY pool, kind, state;

-- How many jobs of each kind are due, and since when the first one waits.
CREATE VIEW jobpool_oldest_runnable AS
SELECT
  j.pool,
  j.kind,
  count(*) AS jobs,
  min(j.run_at_ms) AS oldest_run_at_ms,
  (strftime('%s', 'now') * 1000 - min(j.run_at_ms)) / 1000.0 AS oldest_age_s,
  EXISTS (SELECT 1 FROM jobpool_kinds AS k WHERE k.kind = j.kind) AS known,
  EXISTS (
    SELECT 1 FROM jobpool_pauses AS p
    WHERE (p.what = 'kind' AND p.name = j.kind)
      OR (p.what = 'pool' AND p.name = j.pool)
  ) AS paused
FROM jobpool_jobs AS j
WHERE j.state = 'runnable'
GROUP BY j.pool, j.kind;

-- Jobs that ended badly, and why.
CREATE VIEW jobpool_dead_letters AS
SELECT
  id,
  kind,
  pool,
  state,
  attempt,
  outcome,
  reason,
  error_class,
  error,
  datetime(finished_at_ms / 1000, 'unixepoch') AS finished_at
FROM jobpool_jobs
WHERE state = 'dead'
UNION ALL
SELECT
  id,
  kind,
  pool,
  state,
  attempt,
  outcome,
  reason,
  error_class,
  error,
  datetime(finished_at_ms / 1000, 'unixepoch') AS finished_at
FROM jobpool_jobs
WHERE state = 'quarantined';

-- Who holds what, and until when at least.
CREATE VIEW jobpool_leases AS
SELECT
  j.id,
  j.kind,
  j.pool,
  j.attempt,
  j.token,
  j.supervisor,
  j.slot,
  r.host,
  r.pid,
  j.cancel_requested,
  datetime(j.leased_at_ms / 1000, 'unixepoch') AS leased_at,
  datetime(j.started_at_ms / 1000, 'unixepoch') AS started_at,
  datetime(r.lease_until_ms / 1000, 'unixepoch') AS lease_until
FROM jobpool_jobs AS j
LEFT JOIN jobpool_runs AS r ON r.id = j.supervisor
WHERE j.state = 'leased';

-- The newest record of every published kind.
CREATE VIEW jobpool_newest_kinds AS
SELECT
  kind,
  pool,
  schema,
  timeout_s,
  memory_bytes,
  max_attempts,
  max_crashes,
  updated_at_ms
FROM (
  SELECT
    k.*,
    row_number() OVER (
      PARTITION BY k.kind ORDER BY k.updated_at_ms DESC, k.run_id
    ) AS place
  FROM jobpool_kinds AS k
)
WHERE place = 1;

-- Observed use by kind beside its limits, over its newest 1,000 attempts among the
-- newest 100,000 of each sort: bounded, however long the history is.
CREATE VIEW jobpool_figures AS
WITH
ended AS (
  SELECT kind, pool, finished_at_ms, peak_rss_bytes, duration_s
  FROM (SELECT * FROM jobpool_jobs ORDER BY id DESC LIMIT 100000)
  WHERE state = 'succeeded'
  UNION ALL
  SELECT j.kind, j.pool, a.finished_at_ms, a.peak_rss_bytes, a.duration_s
  FROM (SELECT * FROM jobpool_attempts ORDER BY id DESC LIMIT 100000) AS a
  CROSS JOIN jobpool_jobs AS j ON j.id = a.job_id
),
newest AS (
  SELECT *
  FROM (
    SELECT
      *,
      row_number() OVER (
        PARTITION BY kind, pool ORDER BY finished_at_ms DESC
      ) AS place
    FROM ended
  )
  WHERE place <= 1000
),
-- Ranked from the top, nearest rank; attempts without a figure come last.
ranked AS (
  SELECT
    kind,
    pool,
    peak_rss_bytes,
    duration_s,
    count(peak_rss_bytes) OVER whole AS rss_n,
    count(duration_s) OVER whole AS duration_n,
    row_number() OVER (
      PARTITION BY kind, pool ORDER BY peak_rss_bytes DESC
    ) AS rss_from_top,
    row_number() OVER (
      PARTITION BY kind, pool ORDER BY duration_s DESC
    ) AS duration_from_top
  FROM newest
  WINDOW whole AS (PARTITION BY kind, pool)
)
SELECT
  f.kind,
  f.pool,
  count(*) AS attempts,
  max(CASE WHEN rss_from_top = rss_n / 2 + 1 THEN peak_rss_bytes END)
    AS rss_p50_bytes,
  max(CASE WHEN rss_from_top = rss_n / 100 + 1 THEN peak_rss_bytes END)
    AS rss_p99_bytes,
  max(peak_rss_bytes) AS rss_max_bytes,
  k.memory_bytes,
  max(CASE WHEN duration_from_top = duration_n / 2 + 1 THEN duration_s END)
    AS duration_p50_s,
  max(CASE WHEN duration_from_top = duration_n / 100 + 1 THEN duration_s END)
    AS duration_p99_s,
  max(duration_s) AS duration_max_s,
  k.timeout_s
FROM ranked AS f
LEFT JOIN jobpool_newest_kinds AS k ON k.kind = f.kind
GROUP BY f.kind, f.pool;
