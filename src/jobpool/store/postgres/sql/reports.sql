-- What supervisors report of themselves; what is due, and what it has waited for.

-- name: put_report
-- The newest one of a run.
INSERT INTO jobpool.reports (run_id, at_ms, report)
VALUES (%(run_id)s, %(now_ms)s, %(report)s)
ON CONFLICT (run_id) DO UPDATE
SET at_ms = excluded.at_ms, report = excluded.report

-- name: get_reports
-- Of open runs, oldest run first.
SELECT r.id, r.host, r.pid, p.at_ms, p.report
FROM jobpool.runs AS r
JOIN jobpool.reports AS p ON p.run_id = r.id
WHERE r.ended_at_ms IS NULL
ORDER BY r.started_at_ms, r.id

-- name: prune_reports
-- Of runs that have ended.
DELETE FROM jobpool.reports
WHERE run_id NOT IN (SELECT id FROM jobpool.runs WHERE ended_at_ms IS NULL)

-- name: oldest_in_lanes
-- For how long the oldest job of the first open lanes of each of these kinds has waited.
SELECT %(now_ms)s - min(head.run_at_ms)
FROM (
  SELECT
    (
      SELECT min(j.run_at_ms) FROM jobpool.jobs AS j
      WHERE j.lane = l.id AND j.state || '' = 'runnable'
    ) AS run_at_ms
  FROM jsonb_array_elements_text(%(kinds)s::jsonb) AS known (kind)
  CROSS JOIN LATERAL (
    SELECT n.id
    FROM jobpool.lanes AS n
    WHERE n.pool = %(pool)s::text AND n.kind = known.kind
      AND n.waits AND n.open_at_ms = 0 AND n.blocked_by IS NULL
    ORDER BY n.rank DESC, n.vtime, n.id
    LIMIT %(limit)s::bigint
  ) AS l
) AS head

-- name: load
-- Sessions that wait for a lock, sessions of clients, and how many there may be.
SELECT
  count(*) FILTER (WHERE wait_event_type = 'Lock'),
  count(*),
  current_setting('max_connections')::bigint
FROM pg_stat_activity
WHERE backend_type = 'client backend'

-- name: take_waits_turn
-- Changes nothing if somebody has sampled what jobs wait for since.
UPDATE jobpool.meta
SET value = %(now_ms)s
WHERE name = 'waits_sampled_ms' AND (value <= %(before_ms)s OR value > %(now_ms)s)

-- name: add_waits
-- :rows holds [kind, pool, cause, seconds].
INSERT INTO jobpool.waits (slot_ms, kind, pool, cause, job_s)
SELECT
  %(slot_ms)s,
  r.value ->> 0,
  r.value ->> 1,
  r.value ->> 2,
  (r.value ->> 3)::double precision
FROM jsonb_array_elements(%(rows)s::jsonb) AS r (value)
ON CONFLICT (slot_ms, kind, pool, cause) DO UPDATE
SET job_s = jobpool.waits.job_s + excluded.job_s

-- name: prune_waits
-- Those that are too old.
DELETE FROM jobpool.waits WHERE slot_ms < %(before_ms)s

-- name: get_waits
-- Since a slot, those first for which jobs have waited most.
SELECT kind, pool, cause, sum(job_s) AS job_s
FROM jobpool.waits
WHERE slot_ms >= %(from_ms)s
GROUP BY kind, pool, cause
ORDER BY job_s DESC, kind, pool, cause

-- name: get_overdue
-- Jobs whose time has come, but that no supervisor has made runnable: a range of an index,
-- empty while one runs.
SELECT pool, kind, count(*)
FROM jobpool.jobs
WHERE state = 'pending' AND run_at_ms <= %(now_ms)s
GROUP BY pool, kind

-- name: get_waiting
-- The view, in order, with what get_overdue counts, and with ages and pauses by the
-- store's clock.
SELECT
  pool, kind, sum(jobs)::bigint,
  greatest(0, %(now_ms)s - min(oldest_run_at_ms)::double precision) / 1000,
  bool_or(known),
  EXISTS (
    SELECT 1
    FROM jobpool.pauses AS p
    WHERE (
        (p.what = 'kind' AND p.name = o.kind)
        OR (p.what = 'pool' AND p.name = o.pool)
        OR p.what = 'store'
      )
      AND (p.until_ms IS NULL OR p.until_ms > %(now_ms)s)
  )
FROM (
  SELECT pool, kind, jobs, oldest_run_at_ms, known FROM jobpool.oldest_runnable
  UNION ALL
  SELECT
    j.pool, j.kind, count(*), min(j.run_at_ms),
    EXISTS (SELECT 1 FROM jobpool.kinds AS k WHERE k.kind = j.kind)
  FROM jobpool.jobs AS j
  WHERE j.state = 'pending' AND j.run_at_ms <= %(now_ms)s
  GROUP BY j.pool, j.kind
) AS o
GROUP BY pool, kind
ORDER BY pool, kind
