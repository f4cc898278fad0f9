-- Flows that are retried. Whoever runs this holds the flow.

-- name: retried_flow
-- Its generation, whether it has ended, and why nothing more of it begins. No row: it is
-- not stored yet.
SELECT generation, finished_at_ms IS NOT NULL, ending
FROM jobpool_flows
WHERE id = :flow AND state <> 'building'

-- name: given_members
-- Those of :ids that are in a flow: id, state, what has replaced it; step, its state, and
-- which hook it is.
SELECT j.id, j.state, j.replaced_by, s.id, s.state, s.hook
FROM json_each(:ids) AS wanted
CROSS JOIN jobpool_jobs AS j ON j.id = wanted.value
JOIN jobpool_steps AS s ON s.id = j.step
WHERE s.flow = :flow

-- name: left_out
-- Of a flow, members of steps that had begun which were canceled for one of :reasons: id,
-- step.
SELECT b.id, s.id
FROM jobpool_steps AS s
CROSS JOIN jobpool_jobs AS b ON b.step = s.id
WHERE s.flow = :flow AND s.state IN ('ready', 'done') AND s.hook IS NULL
  AND b.step IS NOT NULL AND b.replaced_by IS NULL
  AND (b.state = 'dead' OR b.state = 'quarantined' OR b.state = 'canceled')
  AND b.reason IN (SELECT value FROM json_each(:reasons))

-- name: unfinished_member
-- Of a flow: one, for instance a hook's that somebody has let run again.
SELECT j.id
FROM jobpool_steps AS s
CROSS JOIN jobpool_jobs AS j ON j.step = s.id
WHERE s.flow = :flow AND j.step IS NOT NULL AND j.finished_at_ms IS NULL
LIMIT 1

-- name: running_member
-- Of :steps, one.
SELECT j.id
FROM json_each(:steps) AS wanted
CROSS JOIN jobpool_jobs AS j ON j.step = wanted.value
WHERE j.step IS NOT NULL AND j.finished_at_ms IS NULL AND +j.state = 'leased'
LIMIT 1

-- name: count_anew
-- The newest rows of :steps, at most :limit.
SELECT count(*)
FROM (
  SELECT 1
  FROM json_each(:steps) AS wanted
  CROSS JOIN jobpool_jobs AS j ON j.step = wanted.value
  WHERE j.step IS NOT NULL AND j.replaced_by IS NULL
  LIMIT :limit
)

-- name: erased_member
-- Of :steps, one that is to run and has no arguments any more.
SELECT j.id
FROM json_each(:steps) AS wanted
CROSS JOIN jobpool_steps AS s ON s.id = wanted.value
CROSS JOIN jobpool_jobs AS j ON j.step = s.id
CROSS JOIN jobpool_payloads AS p ON p.job_id = j.id
WHERE j.step IS NOT NULL AND j.replaced_by IS NULL
  AND NOT s.is_external AND p.payload = x''
  AND iif(
    s.id IN (SELECT value FROM json_each(:ready)),
    j.state <> 'succeeded',
    j.added_by IS NULL
  )
LIMIT 1

-- name: bad_members
-- Of :steps, the newest rows that are dead, quarantined or canceled.
SELECT b.id
FROM json_each(:steps) AS wanted
CROSS JOIN jobpool_jobs AS b ON b.step = wanted.value
WHERE b.step IS NOT NULL AND b.replaced_by IS NULL
  AND (b.state = 'dead' OR b.state = 'quarantined' OR b.state = 'canceled')

-- name: renew_members
-- As revive_jobs, but they wait: a fold opens them, as all others.
UPDATE jobpool_jobs
SET
  state = 'waiting',
  run_at_ms = created_at_ms,
  finished_at_ms = NULL,
  expires_at_ms = NULL,
  failures = 0,
  crashes = 0,
  interruptions = 0,
  recoveries = 0,
  snoozes = 0,
  snoozed_since_ms = NULL,
  throttled = NULL,
  lane = abs(lane),
  reset_attempt = attempt
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: keep_added
-- Of :steps, members whose adder is not there to add them again are as all others.
UPDATE jobpool_jobs
SET added_by = NULL
WHERE id IN (
  SELECT a.id
  FROM json_each(:steps) AS wanted
  CROSS JOIN jobpool_jobs AS a ON a.step = wanted.value
  WHERE a.step IS NOT NULL AND a.replaced_by IS NULL AND a.added_by IS NOT NULL
    AND NOT EXISTS (
      SELECT 1
      FROM jobpool_jobs AS r
      WHERE r.id = a.added_by AND r.step = a.step AND r.replaced_by IS NULL
    )
)

-- name: added_members
-- The newest rows of :steps that others have added: id, adder.
SELECT a.id, a.added_by
FROM json_each(:steps) AS wanted
CROSS JOIN jobpool_jobs AS a ON a.step = wanted.value
WHERE a.step IS NOT NULL AND a.replaced_by IS NULL AND a.added_by IS NOT NULL
ORDER BY a.id

-- name: drop_added
-- Adders add them again: they are replaced by what replaces the first of these. :rows
-- holds [id, first].
UPDATE jobpool_jobs
SET replaced_by = first.replaced_by
FROM json_each(:rows) AS dropped
CROSS JOIN jobpool_jobs AS first ON first.id = json_extract(dropped.value, '$[1]')
WHERE jobpool_jobs.id = json_extract(dropped.value, '$[0]')

-- name: copy_members
-- The newest rows of :steps that nobody adds again, in their order: results are read in it.
INSERT INTO jobpool_jobs (
  kind, pool, state, priority, tenant, max_attempts, timeout_s, memory_bytes,
  created_at_ms, run_at_ms, codec, lane, quota_values, trace, solo, step, generation,
  replays
)
SELECT
  j.kind,
  j.pool,
  'waiting',
  j.priority,
  j.tenant,
  j.max_attempts,
  j.timeout_s,
  j.memory_bytes,
  :now_ms,
  :now_ms,
  j.codec,
  abs(j.lane),
  j.quota_values,
  j.trace,
  j.solo,
  j.step,
  :generation,
  j.id
FROM json_each(:steps) AS wanted
CROSS JOIN jobpool_jobs AS j ON j.step = wanted.value
WHERE j.step IS NOT NULL AND j.replaced_by IS NULL AND j.added_by IS NULL
ORDER BY j.id

-- name: copy_payloads
-- Of the rows that copy_members has stored.
INSERT INTO jobpool_payloads (job_id, payload)
SELECT n.id, p.payload
FROM json_each(:steps) AS wanted
CROSS JOIN jobpool_jobs AS n ON n.step = wanted.value
CROSS JOIN jobpool_payloads AS p ON p.job_id = n.replays
WHERE n.step IS NOT NULL AND n.generation = :generation AND n.state = 'waiting'

-- name: replace_members
-- By the rows that copy_members has stored. MATERIALIZED: otherwise all jobs are read, and
-- the new rows for each of them.
WITH made AS MATERIALIZED (
  SELECT n.id, n.replays
  FROM json_each(:steps) AS wanted
  CROSS JOIN jobpool_jobs AS n ON n.step = wanted.value
  WHERE n.step IS NOT NULL AND n.generation = :generation AND n.state = 'waiting'
)
UPDATE jobpool_jobs
SET replaced_by = made.id
FROM made
WHERE jobpool_jobs.id = made.replays

-- name: reopen_flow
-- It goes on; a paused one stays paused.
UPDATE jobpool_flows
SET
  state = iif(finished_at_ms IS NULL, state, 'open'),
  ending = NULL,
  finished_at_ms = NULL,
  generation = :generation
WHERE id = :flow
