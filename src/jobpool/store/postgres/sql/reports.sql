-- What supervisors report of themselves.

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
