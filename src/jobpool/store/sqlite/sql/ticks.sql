-- Ticks of schedules. See schedules.sql for the order of locks.

-- name: find_ticks
-- Of one schedule, the latest nominal time first.
SELECT
  t.nominal_at_ms,
  t.stored_at_ms,
  CASE WHEN j.finished_at_ms IS NOT NULL THEN 'done' ELSE t.state END,
  t.job_id,
  coalesce(t.job_state, j.state),
  t.backfilled,
  coalesce(t.ended_at_ms, j.finished_at_ms)
FROM jobpool_ticks AS t
LEFT JOIN jobpool_jobs AS j ON j.id = t.job_id
WHERE t.schedule = (SELECT s.id FROM jobpool_schedules AS s WHERE s.name = :name)
ORDER BY t.nominal_at_ms DESC
LIMIT :limit

-- name: delete_ticks
-- Of a schedule that is removed. Jobs stay.
DELETE FROM jobpool_ticks WHERE schedule = :id

-- name: open_ticks
-- What has not ended of some schedules, with what is known of the jobs.
SELECT
  t.id, t.schedule, t.nominal_at_ms, t.state, t.job_id, t.backfilled,
  j.state, j.finished_at_ms, j.attempt
FROM json_each(:ids) AS wanted
CROSS JOIN jobpool_ticks AS t ON t.schedule = wanted.value
LEFT JOIN jobpool_jobs AS j ON j.id = t.job_id
WHERE t.ended_at_ms IS NULL
ORDER BY t.schedule, t.nominal_at_ms

-- name: stored_ticks
-- The nominal times that a schedule has already, within a span.
SELECT nominal_at_ms
FROM jobpool_ticks
WHERE schedule = :id AND nominal_at_ms BETWEEN :from_ms AND :to_ms

-- name: known_ticks
-- :rows holds [schedule, nominal time]: those that are there already.
SELECT t.schedule, t.nominal_at_ms
FROM json_each(:rows) AS new
CROSS JOIN jobpool_ticks AS t
  ON t.schedule = json_extract(new.value, '$[0]')
  AND t.nominal_at_ms = json_extract(new.value, '$[1]')

-- name: insert_ticks
-- One whose nominal time is there already is left out.
INSERT INTO jobpool_ticks (
  schedule, nominal_at_ms, state, backfilled, ended_at_ms, stored_at_ms
)
SELECT
  json_extract(value, '$[0]'),
  json_extract(value, '$[1]'),
  json_extract(value, '$[2]'),
  json_extract(value, '$[3]'),
  json_extract(value, '$[4]'),
  :now_ms
FROM json_each(:rows)
WHERE true
ON CONFLICT (schedule, nominal_at_ms) DO NOTHING
RETURNING id, schedule, nominal_at_ms

-- name: begin_ticks
-- :rows holds [tick, job]: their jobs are stored.
UPDATE jobpool_ticks
SET state = 'open', job_id = json_extract(begun.value, '$[1]')
FROM json_each(:rows) AS begun
WHERE jobpool_ticks.id = json_extract(begun.value, '$[0]')

-- name: number_jobs
-- :rows holds [tick, job]: which tick each is of.
UPDATE jobpool_jobs
SET tick = json_extract(begun.value, '$[0]')
FROM json_each(:rows) AS begun
WHERE jobpool_jobs.id = json_extract(begun.value, '$[1]')

-- name: end_ticks
-- :rows holds [tick, state, its job's, when].
UPDATE jobpool_ticks
SET
  state = json_extract(ended.value, '$[1]'),
  job_state = json_extract(ended.value, '$[2]'),
  ended_at_ms = json_extract(ended.value, '$[3]')
FROM json_each(:rows) AS ended
WHERE jobpool_ticks.id = json_extract(ended.value, '$[0]')

-- name: reopen_ticks
-- Of jobs that were revived.
UPDATE jobpool_ticks
SET state = 'open', job_state = NULL, ended_at_ms = NULL
WHERE ended_at_ms IS NOT NULL AND id IN (
  SELECT tick
  FROM jobpool_jobs
  WHERE id IN (SELECT value FROM json_each(:ids)) AND tick IS NOT NULL
    AND finished_at_ms IS NULL
)

-- name: scheduled
-- What leased jobs are to be told of their ticks.
SELECT t.id, s.name, t.nominal_at_ms, s.rule, t.backfilled
FROM json_each(:ids) AS wanted
CROSS JOIN jobpool_ticks AS t ON t.id = wanted.value
CROSS JOIN jobpool_schedules AS s ON s.id = t.schedule

-- name: tick_of_job
-- For people to see.
SELECT s.name, t.nominal_at_ms, s.rule, t.backfilled
FROM jobpool_jobs AS j
CROSS JOIN jobpool_ticks AS t ON t.id = j.tick
CROSS JOIN jobpool_schedules AS s ON s.id = t.schedule
WHERE j.id = :id

-- name: ticks_of_jobs
-- Of jobs that are to be deleted: the tick, what became of the job, and whether it is the
-- last one of its schedule, which stays.
SELECT
  t.id, j.state, j.finished_at_ms, t.ended_at_ms IS NULL,
  NOT EXISTS (
    SELECT 1
    FROM jobpool_ticks AS later
    WHERE later.schedule = t.schedule AND later.nominal_at_ms > t.nominal_at_ms
  )
FROM jobpool_jobs AS j
CROSS JOIN jobpool_ticks AS t ON t.id = j.tick
WHERE j.id IN (SELECT value FROM json_each(:ids)) AND j.tick IS NOT NULL

-- name: delete_old_ticks
-- With their jobs.
DELETE FROM jobpool_ticks WHERE id IN (SELECT value FROM json_each(:ids))

-- name: prune_skipped
-- They have no jobs. The last one of a schedule stays.
DELETE FROM jobpool_ticks
WHERE id IN (
    SELECT t.id
    FROM jobpool_ticks AS t
    WHERE t.state = 'skipped' AND t.ended_at_ms < :before_ms
      AND EXISTS (
        SELECT 1
        FROM jobpool_ticks AS later
        WHERE later.schedule = t.schedule AND later.nominal_at_ms > t.nominal_at_ms
      )
    ORDER BY t.ended_at_ms
    LIMIT :limit
  )

-- name: skip_ticks_of
-- :ids holds schedules: what waits there gets no job any more.
UPDATE jobpool_ticks
SET state = 'skipped', ended_at_ms = :now_ms
WHERE ended_at_ms IS NULL AND state = 'buffered'
  AND schedule IN (SELECT value FROM json_each(:ids))

-- name: cancel_for_tick
-- They do not run: they end here, for a later tick of their schedules.
UPDATE jobpool_jobs
SET
  state = 'canceled',
  finished_at_ms = :now_ms,
  reason = 'canceled for a later tick of its schedule'
WHERE id IN (SELECT value FROM json_each(:ids))
  AND +state IN ('pending', 'waiting', 'runnable')
