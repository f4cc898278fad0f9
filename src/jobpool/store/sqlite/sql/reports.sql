-- What supervisors report of themselves.

-- name: put_report
-- The newest one of a run.
INSERT INTO jobpool_reports (run_id, at_ms, report)
VALUES (:run_id, :now_ms, :report)
ON CONFLICT (run_id) DO UPDATE
SET at_ms = excluded.at_ms, report = excluded.report

-- name: get_reports
-- Of open runs, oldest run first.
SELECT r.id, r.host, r.pid, p.at_ms, p.report
FROM jobpool_runs AS r
JOIN jobpool_reports AS p ON p.run_id = r.id
WHERE r.ended_at_ms IS NULL
ORDER BY r.started_at_ms, r.id

-- name: prune_reports
-- Of runs that have ended.
DELETE FROM jobpool_reports
WHERE run_id NOT IN (SELECT id FROM jobpool_runs WHERE ended_at_ms IS NULL)

-- name: oldest_in_lanes
-- For how long the oldest job of the first open lanes of these kinds has waited.
SELECT :now_ms - min(head.run_at_ms)
FROM (
  SELECT
    (
      SELECT min(j.run_at_ms) FROM jobpool_jobs AS j
      WHERE j.lane = l.id AND j.state = 'runnable'
    ) AS run_at_ms
  FROM jobpool_lanes AS l
  WHERE l.pool = :pool AND l.kind IN (SELECT value FROM json_each(:kinds))
    AND l.waits = 1 AND l.open_at_ms = 0 AND l.blocked_by IS NULL
  LIMIT :limit
) AS head
