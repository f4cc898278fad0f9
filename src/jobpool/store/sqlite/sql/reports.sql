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
-- For how long the oldest job of the first open lanes of each of these kinds has waited.
SELECT :now_ms - min(head.run_at_ms)
FROM (
  SELECT
    (
      SELECT min(j.run_at_ms) FROM jobpool_jobs AS j
      WHERE j.lane = l.id AND j.state = 'runnable'
    ) AS run_at_ms
  FROM json_each(:kinds) AS known
  CROSS JOIN jobpool_lanes AS l
  WHERE l.id IN (
    SELECT n.id
    FROM jobpool_lanes AS n
    WHERE n.pool = :pool AND n.kind = known.value
      AND n.waits = 1 AND n.open_at_ms = 0 AND n.blocked_by IS NULL
    ORDER BY n.rank DESC, n.vtime, n.id
    LIMIT :limit
  )
) AS head

-- name: take_waits_turn
-- Changes nothing if somebody has sampled what jobs wait for since.
UPDATE jobpool_meta
SET value = :now_ms
WHERE name = 'waits_sampled_ms' AND (value <= :before_ms OR value > :now_ms)

-- name: add_waits
-- :rows holds [kind, pool, cause, seconds].
INSERT INTO jobpool_waits (slot_ms, kind, pool, cause, job_s)
SELECT
  :slot_ms,
  json_extract(value, '$[0]'),
  json_extract(value, '$[1]'),
  json_extract(value, '$[2]'),
  json_extract(value, '$[3]')
FROM json_each(:rows)
WHERE true
ON CONFLICT (slot_ms, kind, pool, cause) DO UPDATE
SET job_s = jobpool_waits.job_s + excluded.job_s

-- name: prune_waits
-- Those that are too old.
DELETE FROM jobpool_waits WHERE slot_ms < :before_ms

-- name: get_waits
-- Since a slot, those first for which jobs have waited most.
SELECT kind, pool, cause, sum(job_s) AS job_s
FROM jobpool_waits
WHERE slot_ms >= :from_ms
GROUP BY kind, pool, cause
ORDER BY job_s DESC, kind, pool, cause
