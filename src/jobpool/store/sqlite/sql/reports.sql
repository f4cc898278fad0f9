-- What supervisors report of themselves; what is due, and what it has waited for.

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

-- name: get_overdue
-- Jobs whose time has come, but that no supervisor has made runnable: a range of an index,
-- empty while one runs.
SELECT pool, kind, count(*)
FROM jobpool_jobs
WHERE state = 'pending' AND run_at_ms <= :now_ms
GROUP BY pool, kind

-- name: get_waiting
-- The view, in order, with what get_overdue counts, and with ages and pauses by the
-- store's clock.
SELECT
  pool, kind, sum(jobs), max(0, :now_ms - min(oldest_run_at_ms)) / 1000.0, max(known),
  EXISTS (
    SELECT 1
    FROM jobpool_pauses AS p
    WHERE (
        (p.what = 'kind' AND p.name = o.kind)
        OR (p.what = 'pool' AND p.name = o.pool)
        OR p.what = 'store'
      )
      AND (p.until_ms IS NULL OR p.until_ms > :now_ms)
  )
FROM (
  SELECT pool, kind, jobs, oldest_run_at_ms, known FROM jobpool_oldest_runnable
  UNION ALL
  SELECT
    j.pool, j.kind, count(*), min(j.run_at_ms),
    EXISTS (SELECT 1 FROM jobpool_kinds AS k WHERE k.kind = j.kind)
  FROM jobpool_jobs AS j
  WHERE j.state = 'pending' AND j.run_at_ms <= :now_ms
  GROUP BY j.pool, j.kind
) AS o
GROUP BY pool, kind
ORDER BY pool, kind
