-- Schedules and their ticks. Whoever changes a schedule or its ticks has locked the
-- schedule's row first, then rows of jobs, then those of ticks. Steps skip what others
-- hold, so supervisors never wait for each other. Jobs are found by their id alone,
-- whatever the statistics say: OFFSET 0 keeps the planner from reading them all.

-- name: schedules_due
-- The next moment that a step has to do with, the latest at which one has planned, and
-- whether a tick has ended, or begun to wait for a retry, that others wait for. One that
-- is gone has ended: it is deleted with its job.
SELECT
  (SELECT min(next_at_ms) FROM jobpool.schedules WHERE next_at_ms IS NOT NULL),
  (SELECT max(planned_at_ms) FROM jobpool.schedules WHERE next_at_ms IS NOT NULL),
  EXISTS (SELECT 1 FROM jobpool.schedules WHERE waits > 0),
  EXISTS (
    SELECT 1
    FROM jobpool.schedules AS s
    LEFT JOIN LATERAL (
      SELECT t.job_id
      FROM jobpool.ticks AS t
      WHERE t.schedule = s.id AND t.ended_at_ms IS NULL AND t.state = 'open'
      OFFSET 0
    ) AS t ON true
    LEFT JOIN LATERAL (
      SELECT one.id, one.finished_at_ms, one.state, one.attempt
      FROM jobpool.jobs AS one
      WHERE one.id = t.job_id
      OFFSET 0
    ) AS j ON true
    WHERE s.waits > 0
      AND (
        j.id IS NULL OR j.finished_at_ms IS NOT NULL
        OR (s.waits = 2 AND j.state <> 'leased' AND j.attempt > 0)
      )
  )

-- name: lock_due_schedules
-- Those that a step has to do with, the longest due first. Four times as many as wanted
-- are read, because others may hold the first ones.
WITH found AS MATERIALIZED (
  (
    SELECT id
    FROM jobpool.schedules
    WHERE next_at_ms IS NOT NULL AND next_at_ms <= %(now_ms)s
    ORDER BY next_at_ms, id
    LIMIT %(limit)s::bigint * 4
  )
  UNION ALL
  (
    SELECT id
    FROM jobpool.schedules
    WHERE next_at_ms IS NOT NULL AND planned_at_ms > %(ahead_ms)s
    ORDER BY next_at_ms + 0, id
    LIMIT %(limit)s::bigint * 4
  )
  UNION ALL
  (
    SELECT w.id
    FROM jobpool.schedules AS w
    WHERE w.waits > 0 AND EXISTS (
      SELECT 1
      FROM (SELECT 1) AS one
      LEFT JOIN LATERAL (
        SELECT t.job_id
        FROM jobpool.ticks AS t
        WHERE t.schedule = w.id AND t.ended_at_ms IS NULL AND t.state = 'open'
        OFFSET 0
      ) AS t ON true
      LEFT JOIN LATERAL (
        SELECT one.id, one.finished_at_ms, one.state, one.attempt
        FROM jobpool.jobs AS one
        WHERE one.id = t.job_id
        OFFSET 0
      ) AS j ON true
      WHERE j.id IS NULL OR j.finished_at_ms IS NOT NULL
        OR (w.waits = 2 AND j.state <> 'leased' AND j.attempt > 0)
    )
    ORDER BY coalesce(w.next_at_ms, 0), w.id
    LIMIT %(limit)s::bigint * 4
  )
)
SELECT
  s.id, s.name, s.application, s.app_version, s.kind, s.pool, s.payload, s.codec,
  s.tenant, s.priority, s.rule, s.options, s.updated_at_ms, s.since_ms, s.last_at_ms,
  s.last_end_ms, s.next_at_ms, s.planned_at_ms, s.waits, s.missed, s.retired_at_ms,
  s.paused_at_ms, s.paused_until_ms, s.paused_by, s.note
FROM jobpool.schedules AS s
WHERE s.id = ANY (ARRAY(SELECT id FROM found))
  AND (s.next_at_ms <= %(now_ms)s OR s.planned_at_ms > %(ahead_ms)s OR s.waits > 0)
ORDER BY coalesce(s.next_at_ms, 0), s.id
LIMIT %(limit)s
FOR UPDATE OF s SKIP LOCKED

-- name: published
-- Those of an application, and others that have one of these names: column by column as
-- in lock_due_schedules.
SELECT
  id, name, application, app_version, kind, pool, payload, codec, tenant, priority,
  rule, options, updated_at_ms, since_ms, last_at_ms, last_end_ms, next_at_ms,
  planned_at_ms, waits, missed, retired_at_ms, paused_at_ms, paused_until_ms,
  paused_by, note
FROM jobpool.schedules
WHERE application = %(application)s
  OR name IN (SELECT value FROM jsonb_array_elements_text(%(names)s::jsonb))
ORDER BY id

-- name: lock_published
-- As published.
SELECT
  id, name, application, app_version, kind, pool, payload, codec, tenant, priority,
  rule, options, updated_at_ms, since_ms, last_at_ms, last_end_ms, next_at_ms,
  planned_at_ms, waits, missed, retired_at_ms, paused_at_ms, paused_until_ms,
  paused_by, note
FROM jobpool.schedules
WHERE application = %(application)s
  OR name IN (SELECT value FROM jsonb_array_elements_text(%(names)s::jsonb))
ORDER BY id
FOR UPDATE

-- name: find_schedules
-- All, or one by its name, in order of their names: as lock_due_schedules; then the last
-- tick, as find_ticks.
SELECT
  s.id, s.name, s.application, s.app_version, s.kind, s.pool, s.payload, s.codec,
  s.tenant, s.priority, s.rule, s.options, s.updated_at_ms, s.since_ms, s.last_at_ms,
  s.last_end_ms, s.next_at_ms, s.planned_at_ms, s.waits, s.missed, s.retired_at_ms,
  s.paused_at_ms, s.paused_until_ms, s.paused_by, s.note,
  t.nominal_at_ms,
  t.stored_at_ms,
  CASE WHEN j.finished_at_ms IS NOT NULL THEN 'done' ELSE t.state END,
  t.job_id,
  coalesce(t.job_state, j.state),
  t.backfilled,
  coalesce(t.ended_at_ms, j.finished_at_ms)
FROM jobpool.schedules AS s
LEFT JOIN LATERAL (
  SELECT
    newest.nominal_at_ms, newest.stored_at_ms, newest.state, newest.job_id,
    newest.job_state, newest.backfilled, newest.ended_at_ms
  FROM jobpool.ticks AS newest
  WHERE newest.schedule = s.id
  ORDER BY newest.nominal_at_ms DESC
  LIMIT 1
) AS t ON true
LEFT JOIN LATERAL (
  SELECT one.state, one.finished_at_ms
  FROM jobpool.jobs AS one
  WHERE one.id = t.job_id
  OFFSET 0
) AS j ON true
WHERE %(name)s::text IS NULL OR s.name = %(name)s::text
ORDER BY s.name

-- name: publisher
-- What a run runs.
SELECT application, app_version
FROM jobpool.runs
WHERE id = %(run_id)s AND ended_at_ms IS NULL AND application IS NOT NULL

-- name: application_versions
-- Those that the living runs of an application have, with when each was first seen; runs
-- that have ended count for that, so that a restart does not make an old version new.
SELECT coalesce(app_version, ''), min(coalesce(app_since_ms, started_at_ms))
FROM jobpool.runs
WHERE application = %(application)s
GROUP BY coalesce(app_version, '')
HAVING bool_or(ended_at_ms IS NULL AND lease_until_ms > %(gone_ms)s)

-- name: insert_schedules
-- :rows holds the columns, then first byte and length of the payload within :blobs. One
-- whose name is taken is left out. In order, so that two that publish do not deadlock.
INSERT INTO jobpool.schedules (
  name, application, app_version, kind, pool, codec, tenant, priority, rule, options,
  payload, updated_at_ms, since_ms, next_at_ms, planned_at_ms
)
SELECT
  value ->> 0,
  value ->> 1,
  value ->> 2,
  value ->> 3,
  value ->> 4,
  value ->> 5,
  value ->> 6,
  (value ->> 7)::bigint,
  value ->> 8,
  value ->> 9,
  substr(%(blobs)s::bytea, (value ->> 10)::integer, (value ->> 11)::integer),
  %(now_ms)s,
  %(now_ms)s,
  %(now_ms)s,
  %(now_ms)s
FROM jsonb_array_elements(%(rows)s::jsonb) AS new (value)
ORDER BY value ->> 0
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: define_schedules
-- As insert_schedules, for those that are there.
UPDATE jobpool.schedules
SET
  application = changed.value ->> 1,
  app_version = changed.value ->> 2,
  kind = changed.value ->> 3,
  pool = changed.value ->> 4,
  codec = changed.value ->> 5,
  tenant = changed.value ->> 6,
  priority = (changed.value ->> 7)::bigint,
  rule = changed.value ->> 8,
  options = changed.value ->> 9,
  payload = substr(
    %(blobs)s::bytea, (changed.value ->> 10)::integer, (changed.value ->> 11)::integer
  ),
  updated_at_ms = %(now_ms)s
FROM jsonb_array_elements(%(rows)s::jsonb) AS changed (value)
WHERE jobpool.schedules.name = changed.value ->> 0

-- name: plan_schedules
-- Where each goes on.
UPDATE jobpool.schedules
SET
  since_ms = (planned.value ->> 1)::bigint,
  last_at_ms = (planned.value ->> 2)::bigint,
  last_end_ms = (planned.value ->> 3)::bigint,
  next_at_ms = (planned.value ->> 4)::bigint,
  waits = (planned.value ->> 5)::smallint,
  missed = (planned.value ->> 6)::bigint,
  retired_at_ms = (planned.value ->> 7)::bigint,
  paused_at_ms = (planned.value ->> 8)::bigint,
  paused_until_ms = (planned.value ->> 9)::bigint,
  paused_by = planned.value ->> 10,
  note = planned.value ->> 11,
  planned_at_ms = %(now_ms)s
FROM jsonb_array_elements(%(rows)s::jsonb) AS planned (value)
WHERE jobpool.schedules.id = (planned.value ->> 0)::bigint

-- name: restart_schedules
-- In a restored store: the next step plans each anew, from where it was or from now.
UPDATE jobpool.schedules
SET
  paused_until_ms = CASE WHEN %(catch_up)s THEN paused_until_ms ELSE %(now_ms)s END,
  next_at_ms = %(now_ms)s,
  planned_at_ms = %(now_ms)s
WHERE retired_at_ms IS NULL AND paused_at_ms IS NULL

-- name: delete_schedule
-- After its ticks.
DELETE FROM jobpool.schedules WHERE id = %(id)s
