-- Schedules and their ticks. Whoever changes a schedule or its ticks has locked the
-- schedule's row first: here by being the only writer.

-- name: schedules_due
-- The next moment that a step has to do with, the latest at which one has planned, and
-- whether a tick has ended, or begun to wait for a retry, that others wait for. One that
-- is gone has ended: it is deleted with its job.
SELECT
  (SELECT min(next_at_ms) FROM jobpool_schedules WHERE next_at_ms IS NOT NULL),
  (SELECT max(planned_at_ms) FROM jobpool_schedules WHERE next_at_ms IS NOT NULL),
  EXISTS (SELECT 1 FROM jobpool_schedules WHERE waits > 0),
  EXISTS (
    SELECT 1
    FROM jobpool_schedules AS s
    LEFT JOIN jobpool_ticks AS t
      ON t.schedule = s.id AND t.ended_at_ms IS NULL AND t.state = 'open'
    LEFT JOIN jobpool_jobs AS j ON j.id = t.job_id
    WHERE s.waits > 0
      AND (
        j.id IS NULL OR j.finished_at_ms IS NOT NULL
        OR (s.waits = 2 AND +j.state <> 'leased' AND j.attempt > 0)
      )
  )

-- name: lock_due_schedules
-- Those that a step has to do with, the longest due first.
SELECT
  s.id, s.name, s.application, s.app_version, s.kind, s.pool, s.payload, s.codec,
  s.tenant, s.priority, s.rule, s.options, s.updated_at_ms, s.since_ms, s.last_at_ms,
  s.last_end_ms, s.next_at_ms, s.planned_at_ms, s.waits, s.missed, s.retired_at_ms,
  s.paused_at_ms, s.paused_until_ms, s.paused_by, s.note
FROM jobpool_schedules AS s
WHERE s.id IN (
  SELECT id
  FROM (
    SELECT id
    FROM jobpool_schedules
    WHERE next_at_ms IS NOT NULL AND next_at_ms <= :now_ms
    ORDER BY next_at_ms, id
    LIMIT :limit
  )
  UNION ALL
  SELECT id
  FROM (
    SELECT id
    FROM jobpool_schedules
    WHERE next_at_ms IS NOT NULL AND planned_at_ms > :ahead_ms
    ORDER BY +next_at_ms, id
    LIMIT :limit
  )
  UNION ALL
  SELECT id
  FROM (
    SELECT w.id
    FROM jobpool_schedules AS w
    WHERE w.waits > 0 AND EXISTS (
      SELECT 1
      FROM (SELECT 1) AS one
      LEFT JOIN jobpool_ticks AS t
        ON t.schedule = w.id AND t.ended_at_ms IS NULL AND t.state = 'open'
      LEFT JOIN jobpool_jobs AS j ON j.id = t.job_id
      WHERE j.id IS NULL OR j.finished_at_ms IS NOT NULL
        OR (w.waits = 2 AND +j.state <> 'leased' AND j.attempt > 0)
    )
    ORDER BY coalesce(w.next_at_ms, 0), w.id
    LIMIT :limit
  )
)
ORDER BY coalesce(s.next_at_ms, 0), s.id
LIMIT :limit

-- name: published
-- Those of an application, and others that have one of these names: column by column as
-- in lock_due_schedules.
SELECT
  id, name, application, app_version, kind, pool, payload, codec, tenant, priority,
  rule, options, updated_at_ms, since_ms, last_at_ms, last_end_ms, next_at_ms,
  planned_at_ms, waits, missed, retired_at_ms, paused_at_ms, paused_until_ms,
  paused_by, note
FROM jobpool_schedules
WHERE application = :application OR name IN (SELECT value FROM json_each(:names))
ORDER BY id

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
FROM jobpool_schedules AS s
LEFT JOIN jobpool_ticks AS t ON t.id = (
  SELECT newest.id
  FROM jobpool_ticks AS newest
  WHERE newest.schedule = s.id
  ORDER BY newest.nominal_at_ms DESC
  LIMIT 1
)
LEFT JOIN jobpool_jobs AS j ON j.id = t.job_id
WHERE :name IS NULL OR s.name = :name
ORDER BY s.name

-- name: publisher
-- What a run runs.
SELECT application, app_version
FROM jobpool_runs
WHERE id = :run_id AND ended_at_ms IS NULL AND application IS NOT NULL

-- name: application_versions
-- Those that the living runs of an application have, with when each was first seen; runs
-- that have ended count for that, so that a restart does not make an old version new.
SELECT coalesce(app_version, ''), min(coalesce(app_since_ms, started_at_ms))
FROM jobpool_runs
WHERE application = :application
GROUP BY coalesce(app_version, '')
HAVING max(ended_at_ms IS NULL AND lease_until_ms > :gone_ms) = 1

-- name: insert_schedules
-- :rows holds the columns, then first byte and length of the payload within :blobs. One
-- whose name is taken is left out.
INSERT INTO jobpool_schedules (
  name, application, app_version, kind, pool, codec, tenant, priority, rule, options,
  payload, updated_at_ms, since_ms, next_at_ms, planned_at_ms
)
SELECT
  json_extract(value, '$[0]'),
  json_extract(value, '$[1]'),
  json_extract(value, '$[2]'),
  json_extract(value, '$[3]'),
  json_extract(value, '$[4]'),
  json_extract(value, '$[5]'),
  json_extract(value, '$[6]'),
  json_extract(value, '$[7]'),
  json_extract(value, '$[8]'),
  json_extract(value, '$[9]'),
  substr(:blobs, json_extract(value, '$[10]'), json_extract(value, '$[11]')),
  :now_ms,
  :now_ms,
  :now_ms,
  :now_ms
FROM json_each(:rows)
WHERE true
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: define_schedules
-- As insert_schedules, for those that are there.
UPDATE jobpool_schedules
SET
  application = json_extract(changed.value, '$[1]'),
  app_version = json_extract(changed.value, '$[2]'),
  kind = json_extract(changed.value, '$[3]'),
  pool = json_extract(changed.value, '$[4]'),
  codec = json_extract(changed.value, '$[5]'),
  tenant = json_extract(changed.value, '$[6]'),
  priority = json_extract(changed.value, '$[7]'),
  rule = json_extract(changed.value, '$[8]'),
  options = json_extract(changed.value, '$[9]'),
  payload = substr(
    :blobs,
    json_extract(changed.value, '$[10]'),
    json_extract(changed.value, '$[11]')
  ),
  updated_at_ms = :now_ms
FROM json_each(:rows) AS changed
WHERE jobpool_schedules.name = json_extract(changed.value, '$[0]')

-- name: plan_schedules
-- Where each goes on.
UPDATE jobpool_schedules
SET
  since_ms = json_extract(planned.value, '$[1]'),
  last_at_ms = json_extract(planned.value, '$[2]'),
  last_end_ms = json_extract(planned.value, '$[3]'),
  next_at_ms = json_extract(planned.value, '$[4]'),
  waits = json_extract(planned.value, '$[5]'),
  missed = json_extract(planned.value, '$[6]'),
  retired_at_ms = json_extract(planned.value, '$[7]'),
  paused_at_ms = json_extract(planned.value, '$[8]'),
  paused_until_ms = json_extract(planned.value, '$[9]'),
  paused_by = json_extract(planned.value, '$[10]'),
  note = json_extract(planned.value, '$[11]'),
  planned_at_ms = :now_ms
FROM json_each(:rows) AS planned
WHERE jobpool_schedules.id = json_extract(planned.value, '$[0]')

-- name: restart_schedules
-- In a restored store: the next step plans each anew, from where it was or from now.
UPDATE jobpool_schedules
SET
  paused_until_ms = CASE WHEN :catch_up THEN paused_until_ms ELSE :now_ms END,
  next_at_ms = :now_ms,
  planned_at_ms = :now_ms
WHERE retired_at_ms IS NULL AND paused_at_ms IS NULL

-- name: delete_schedule
-- After its ticks.
DELETE FROM jobpool_schedules WHERE id = :id
