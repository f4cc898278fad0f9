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
-- For how long the oldest job of the first open lanes of these kinds has waited.
SELECT %(now_ms)s - min(head.run_at_ms)
FROM (
  SELECT
    (
      SELECT min(j.run_at_ms) FROM jobpool.jobs AS j
      WHERE j.lane = l.id AND j.state = 'runnable'
    ) AS run_at_ms
  FROM jobpool.lanes AS l
  WHERE l.pool = %(pool)s
    AND l.kind IN (SELECT value FROM jsonb_array_elements_text(%(kinds)s::jsonb))
    AND l.waits AND l.open_at_ms = 0 AND l.blocked_by IS NULL
  LIMIT %(limit)s
) AS head

-- name: load
-- Sessions that wait for a lock, sessions of clients, and how many there may be.
SELECT
  count(*) FILTER (WHERE wait_event_type = 'Lock'),
  count(*),
  current_setting('max_connections')::bigint
FROM pg_stat_activity
WHERE backend_type = 'client backend'
