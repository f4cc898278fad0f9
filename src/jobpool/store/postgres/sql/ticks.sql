-- Ticks of schedules. See schedules.sql for the order of locks. Jobs are found by their
-- id alone, whatever the statistics say.

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
FROM jobpool.ticks AS t
LEFT JOIN LATERAL (
  SELECT one.state, one.finished_at_ms
  FROM jobpool.jobs AS one
  WHERE one.id = t.job_id
  OFFSET 0
) AS j ON true
WHERE t.schedule = (
    SELECT s.id FROM jobpool.schedules AS s WHERE s.name = %(name)s::text
  )
ORDER BY t.nominal_at_ms DESC
LIMIT %(limit)s

-- name: delete_ticks
-- Of a schedule that is removed. Jobs stay.
DELETE FROM jobpool.ticks WHERE schedule = %(id)s

-- name: open_ticks
-- What has not ended of some schedules, with what is known of the jobs.
SELECT
  t.id, t.schedule, t.nominal_at_ms, t.state, t.job_id, t.backfilled,
  j.state, j.finished_at_ms, j.attempt
FROM jobpool.ticks AS t
LEFT JOIN LATERAL (
  SELECT one.state, one.finished_at_ms, one.attempt
  FROM jobpool.jobs AS one
  WHERE one.id = t.job_id
  OFFSET 0
) AS j ON true
WHERE t.ended_at_ms IS NULL AND t.schedule = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
ORDER BY t.schedule, t.nominal_at_ms

-- name: hold_retries
-- Of these jobs, those that wait for a retry, locked: nobody can lease them any more.
SELECT j.id
FROM jobpool.jobs AS j
WHERE j.id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND j.attempt > 0 AND j.state || '' IN ('pending', 'runnable', 'waiting')
ORDER BY j.id
FOR UPDATE SKIP LOCKED

-- name: stored_ticks
-- The nominal times that a schedule has already, within a span.
SELECT nominal_at_ms
FROM jobpool.ticks
WHERE schedule = %(id)s AND nominal_at_ms BETWEEN %(from_ms)s AND %(to_ms)s

-- name: known_ticks
-- :rows holds [schedule, nominal time]: those that are there already.
SELECT t.schedule, t.nominal_at_ms
FROM jsonb_array_elements(%(rows)s::jsonb) AS new (value)
CROSS JOIN LATERAL (
  SELECT one.schedule, one.nominal_at_ms
  FROM jobpool.ticks AS one
  WHERE one.schedule = (new.value ->> 0)::bigint
    AND one.nominal_at_ms = (new.value ->> 1)::bigint
  OFFSET 0
) AS t

-- name: insert_ticks
-- One whose nominal time is there already is left out.
INSERT INTO jobpool.ticks (
  schedule, nominal_at_ms, state, backfilled, ended_at_ms, stored_at_ms
)
SELECT
  (value ->> 0)::bigint,
  (value ->> 1)::bigint,
  value ->> 2,
  (value ->> 3)::integer = 1,
  (value ->> 4)::bigint,
  %(now_ms)s
FROM jsonb_array_elements(%(rows)s::jsonb) AS new (value)
ON CONFLICT (schedule, nominal_at_ms) DO NOTHING
RETURNING id, schedule, nominal_at_ms

-- name: begin_ticks
-- :rows holds [tick, job]: their jobs are stored.
UPDATE jobpool.ticks
SET state = 'open', job_id = (begun.value ->> 1)::bigint
FROM jsonb_array_elements(%(rows)s::jsonb) AS begun (value)
WHERE jobpool.ticks.id = (begun.value ->> 0)::bigint

-- name: number_jobs
-- :rows holds [tick, job]: which tick each is of.
UPDATE jobpool.jobs
SET tick = (begun.value ->> 0)::bigint
FROM jsonb_array_elements(%(rows)s::jsonb) AS begun (value)
WHERE jobpool.jobs.id = (begun.value ->> 1)::bigint

-- name: end_ticks
-- :rows holds [tick, state, its job's, when].
UPDATE jobpool.ticks
SET
  state = ended.value ->> 1,
  job_state = ended.value ->> 2,
  ended_at_ms = (ended.value ->> 3)::bigint
FROM jsonb_array_elements(%(rows)s::jsonb) AS ended (value)
WHERE jobpool.ticks.id = (ended.value ->> 0)::bigint

-- name: reopen_ticks
-- Of jobs that were revived.
UPDATE jobpool.ticks
SET state = 'open', job_state = NULL, ended_at_ms = NULL
WHERE ended_at_ms IS NOT NULL AND id = ANY (
  ARRAY(
    SELECT j.tick
    FROM jobpool.jobs AS j
    WHERE j.id = ANY (
        ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
      )
      AND j.tick IS NOT NULL AND j.finished_at_ms IS NULL
  )
)

-- name: scheduled
-- What leased jobs are to be told of their ticks.
SELECT t.id, s.name, t.nominal_at_ms, s.rule, t.backfilled
FROM jobpool.ticks AS t
JOIN jobpool.schedules AS s ON s.id = t.schedule
WHERE t.id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
)

-- name: tick_of_job
-- For people to see.
SELECT s.name, t.nominal_at_ms, s.rule, t.backfilled
FROM jobpool.jobs AS j
JOIN jobpool.ticks AS t ON t.id = j.tick
JOIN jobpool.schedules AS s ON s.id = t.schedule
WHERE j.id = %(id)s

-- name: ticks_of_jobs
-- Of jobs that are to be deleted: the tick, what became of the job, and whether it is the
-- last one of its schedule, which stays.
SELECT
  t.id, j.state, j.finished_at_ms, t.ended_at_ms IS NULL,
  NOT EXISTS (
    SELECT 1
    FROM jobpool.ticks AS later
    WHERE later.schedule = t.schedule AND later.nominal_at_ms > t.nominal_at_ms
  )
FROM (
  SELECT gone.state, gone.finished_at_ms, gone.tick
  FROM jobpool.jobs AS gone
  WHERE gone.id = ANY (
      ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
    )
    AND gone.tick IS NOT NULL
  OFFSET 0
) AS j
JOIN jobpool.ticks AS t ON t.id = j.tick

-- name: delete_old_ticks
-- With their jobs.
DELETE FROM jobpool.ticks
WHERE id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
)

-- name: prune_skipped
-- They have no jobs. The last one of a schedule stays.
DELETE FROM jobpool.ticks
WHERE id = ANY (
  ARRAY(
    SELECT t.id
    FROM jobpool.ticks AS t
    WHERE t.state = 'skipped' AND t.ended_at_ms < %(before_ms)s
      AND EXISTS (
        SELECT 1
        FROM jobpool.ticks AS later
        WHERE later.schedule = t.schedule AND later.nominal_at_ms > t.nominal_at_ms
      )
    ORDER BY t.ended_at_ms
    LIMIT %(limit)s
    FOR UPDATE OF t SKIP LOCKED
  )
)

-- name: skip_ticks_of
-- :ids holds schedules: what waits there gets no job any more.
UPDATE jobpool.ticks
SET state = 'skipped', ended_at_ms = %(now_ms)s
WHERE ended_at_ms IS NULL AND state = 'buffered' AND schedule = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )

-- name: cancel_for_tick
-- They do not run: they end here, for a later tick of their schedules.
UPDATE jobpool.jobs
SET
  state = 'canceled',
  finished_at_ms = %(now_ms)s,
  reason = 'canceled for a later tick of its schedule'
WHERE id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND state || '' IN ('pending', 'waiting', 'runnable')
