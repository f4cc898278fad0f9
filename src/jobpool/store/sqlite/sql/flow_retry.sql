-- Flows that have ended and are to go on. Whoever runs this holds the flow.

-- name: ended_flow
-- Its generation. No row: it has not ended.
SELECT generation FROM jobpool_flows WHERE id = :flow AND finished_at_ms IS NOT NULL

-- name: unfinished_member
-- Of a flow: one, for instance a hook's that somebody has let run again.
SELECT j.id
FROM jobpool_steps AS s
CROSS JOIN jobpool_jobs AS j ON j.step = s.id
WHERE s.flow = :flow AND j.step IS NOT NULL AND j.finished_at_ms IS NULL
LIMIT 1

-- name: erased_member
-- Of :steps, one that is to run and has no arguments any more.
SELECT j.id
FROM json_each(:steps) AS wanted
CROSS JOIN jobpool_steps AS s ON s.id = wanted.value
CROSS JOIN jobpool_jobs AS j ON j.step = s.id
CROSS JOIN jobpool_payloads AS p ON p.job_id = j.id
WHERE j.step IS NOT NULL AND j.replaced_by IS NULL
  AND NOT s.is_external AND p.payload = x''
  AND (s.id NOT IN (SELECT value FROM json_each(:ready)) OR j.state <> 'succeeded')
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

-- name: copy_members
-- The newest rows of :steps, in their order: results are read in it.
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
WHERE j.step IS NOT NULL AND j.replaced_by IS NULL
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
-- By the rows that copy_members has stored.
UPDATE jobpool_jobs
SET replaced_by = made.id
FROM (
  SELECT n.id, n.replays
  FROM json_each(:steps) AS wanted
  CROSS JOIN jobpool_jobs AS n ON n.step = wanted.value
  WHERE n.step IS NOT NULL AND n.generation = :generation AND n.state = 'waiting'
) AS made
WHERE jobpool_jobs.id = made.replays

-- name: reopen_flow
-- It goes on.
UPDATE jobpool_flows
SET state = 'open', ending = NULL, finished_at_ms = NULL, generation = :generation
WHERE id = :flow
