-- Flows. What stores them also runs on a caller's own connection: texts are cast to BLOB.

-- name: find_flow
-- The flow with a key.
SELECT +id, CAST(state AS BLOB)
FROM jobpool_flows
WHERE name = :name AND key = :key AND key IS NOT NULL

-- name: insert_flow
-- No row: another one has the key.
INSERT INTO jobpool_flows (
  name, key, tenant, state, failure, builder, created_at_ms, touched_at_ms
)
VALUES (:name, :key, :tenant, :state, :failure, :builder, :now_ms, :now_ms)
ON CONFLICT DO NOTHING
RETURNING +id

-- name: insert_steps
-- :rows holds [number, name, state, hook, external, timeout, until].
INSERT INTO jobpool_steps (
  flow, number, name, state, hook, is_external, timeout_ms, until_ms
)
SELECT
  :flow,
  json_extract(new.value, '$[0]'),
  json_extract(new.value, '$[1]'),
  json_extract(new.value, '$[2]'),
  json_extract(new.value, '$[3]'),
  json_extract(new.value, '$[4]'),
  json_extract(new.value, '$[5]'),
  json_extract(new.value, '$[6]')
FROM json_each(:rows) AS new
ORDER BY new.key

-- name: step_ids
-- Of a flow, in order of the numbers.
SELECT +id FROM jobpool_steps WHERE flow = :flow ORDER BY number

-- name: insert_edges
-- :rows holds [from, to, when].
INSERT INTO jobpool_edges (flow, from_step, to_step, when_ended)
SELECT
  :flow,
  json_extract(new.value, '$[0]'),
  json_extract(new.value, '$[1]'),
  json_extract(new.value, '$[2]')
FROM json_each(:rows) AS new

-- name: insert_members
-- As insert_jobs, with step, generation and adder.
INSERT INTO jobpool_jobs (
  kind, pool, state, priority, key, unique_text, tenant,
  max_attempts, timeout_s, memory_bytes, created_at_ms, run_at_ms, expires_at_ms,
  codec, lane, quota_values, trace, step, generation, added_by
)
SELECT
  json_extract(new.value, '$[0]'),
  json_extract(new.value, '$[1]'),
  json_extract(new.value, '$[2]'),
  json_extract(new.value, '$[3]'),
  json_extract(new.value, '$[4]'),
  json_extract(new.value, '$[5]'),
  json_extract(new.value, '$[6]'),
  json_extract(new.value, '$[7]'),
  json_extract(new.value, '$[8]'),
  json_extract(new.value, '$[9]'),
  :now_ms,
  json_extract(new.value, '$[10]'),
  json_extract(new.value, '$[11]'),
  json_extract(new.value, '$[12]'),
  json_extract(new.value, '$[13]'),
  json_extract(new.value, '$[14]'),
  json_extract(new.value, '$[15]'),
  json_extract(new.value, '$[16]'),
  json_extract(new.value, '$[17]'),
  json_extract(new.value, '$[18]')
FROM json_each(:rows) AS new
ORDER BY new.key
RETURNING +id

-- name: steps_of_adders
-- Of jobs that are members: id, step, generation, whether the step has ended.
SELECT j.id, j.step, j.generation, s.state IN ('done', 'skipped')
FROM jobpool_jobs AS j
JOIN jobpool_steps AS s ON s.id = j.step
WHERE j.id IN (SELECT value FROM json_each(:ids))

-- name: note_steps
-- They are to be looked at.
INSERT OR IGNORE INTO jobpool_flow_notes (step)
SELECT value FROM json_each(:steps)

-- name: touch_flow
-- Nothing is changed: somebody else builds it by now.
UPDATE jobpool_flows
SET touched_at_ms = :now_ms
WHERE id = :flow AND state = 'building' AND builder = :builder

-- name: seize_flow
-- Whoever has begun to build it must not go on.
UPDATE jobpool_flows
SET builder = :builder, touched_at_ms = :now_ms
WHERE id = :flow AND state = 'building'

-- name: open_flow
-- All of it is stored.
UPDATE jobpool_flows
SET state = 'open', builder = NULL
WHERE id = :flow AND state = 'building' AND builder = :builder

-- name: has_flow_notes
-- Whether a fold has something to do.
SELECT EXISTS (SELECT 1 FROM jobpool_flow_notes) OR EXISTS (
  SELECT 1
  FROM jobpool_steps
  WHERE until_ms IS NOT NULL AND state = 'ready' AND until_ms <= :now_ms
)

-- name: flow_noted
-- Steps to be looked at: note, step, flow. Those of no flow are gone.
SELECT n.step, n.step, s.flow
FROM jobpool_flow_notes AS n
LEFT JOIN jobpool_steps AS s ON s.id = n.step
ORDER BY n.step
LIMIT :limit

-- name: flow_overdue
-- External steps whose time has run out: step, flow.
SELECT id, flow
FROM jobpool_steps
WHERE until_ms IS NOT NULL AND state = 'ready' AND until_ms <= :now_ms
ORDER BY until_ms
LIMIT :limit

-- name: delete_flow_notes
-- They were looked at.
DELETE FROM jobpool_flow_notes WHERE step IN (SELECT value FROM json_each(:notes))

-- name: flow_heads
-- Flows that have not ended: id, state, failure, ending.
SELECT id, state, failure, ending
FROM jobpool_flows
WHERE id IN (SELECT value FROM json_each(:flows)) AND finished_at_ms IS NULL

-- name: flow_steps
-- Steps, and how their members are: id, flow, state, failed, hook, external, timeout,
-- until, whether one has not ended, whether one waits, whether one is bad.
SELECT
  s.id,
  s.flow,
  s.state,
  s.failed,
  s.hook,
  s.is_external,
  s.timeout_ms,
  s.until_ms,
  EXISTS (
    SELECT 1
    FROM jobpool_jobs AS j
    WHERE j.step = s.id AND j.step IS NOT NULL AND j.finished_at_ms IS NULL
  ),
  EXISTS (SELECT 1 FROM jobpool_jobs AS w WHERE w.step = s.id AND w.state = 'waiting'),
  EXISTS (
    SELECT 1
    FROM jobpool_jobs AS b
    WHERE b.step = s.id AND b.step IS NOT NULL AND b.replaced_by IS NULL
      AND (b.state = 'dead' OR b.state = 'quarantined' OR b.state = 'canceled')
  )
FROM json_each(:steps) AS wanted
CROSS JOIN jobpool_steps AS s ON s.id = wanted.value

-- name: steps_before
-- Edges to closed steps: to, state and failed of the step before, when. Of one that surely
-- stays so only that: a step before 10,000 others would be read with all its edges whenever
-- one of them ends. It is found among a few steps of its flow that have not ended.
WITH given (id, waits) AS MATERIALIZED (
  SELECT
    s.id,
    EXISTS (
      SELECT 1
      FROM (
        SELECT u.id
        FROM jobpool_steps AS u
        WHERE u.flow = s.flow AND u.state IN ('closed', 'ready', 'skipping')
        LIMIT 8
      ) AS a
      CROSS JOIN jobpool_edges AS b ON b.from_step = a.id AND b.to_step = s.id
    )
  FROM json_each(:steps) AS wanted
  CROSS JOIN jobpool_steps AS s ON s.id = wanted.value
  WHERE s.state || '' = 'closed'
)
SELECT g.id, 'closed', 0, 'finished' FROM given AS g WHERE g.waits
UNION ALL
SELECT e.to_step, f.state, f.failed, e.when_ended
FROM given AS g
CROSS JOIN jobpool_edges AS e ON e.to_step = g.id
CROSS JOIN jobpool_steps AS f ON f.id = e.from_step
WHERE NOT g.waits

-- name: edges_out
-- Edges from steps: from, to, when.
SELECT e.from_step, e.to_step, e.when_ended
FROM json_each(:steps) AS wanted
CROSS JOIN jobpool_edges AS e ON e.from_step = wanted.value

-- name: set_steps
-- :rows holds [id, state, failed, until].
UPDATE jobpool_steps
SET
  state = new.state,
  failed = new.failed,
  until_ms = new.until_ms
FROM (
  SELECT
    json_extract(value, '$[0]') AS id,
    json_extract(value, '$[1]') AS state,
    json_extract(value, '$[2]') AS failed,
    json_extract(value, '$[3]') AS until_ms
  FROM json_each(:rows)
) AS new
WHERE jobpool_steps.id = new.id

-- name: open_members
-- Members of :steps that wait, at most :limit. What they were to wait for, and how long
-- they have before they expire, is counted from now. Returns pools.
UPDATE jobpool_jobs
SET
  state = iif(run_at_ms <= created_at_ms, 'runnable', 'pending'),
  run_at_ms = min(run_at_ms + :now_ms - created_at_ms, 253402300799000),
  expires_at_ms = min(expires_at_ms + :now_ms - created_at_ms, 253402300799000)
WHERE id IN (
  SELECT w.id
  FROM json_each(:steps) AS wanted
  CROSS JOIN jobpool_jobs AS w ON w.step = wanted.value
  WHERE w.state = 'waiting'
  LIMIT :limit
)
RETURNING pool

-- name: cancel_members
-- Members of steps that have not begun, at most :limit; :rows holds [step, reason].
UPDATE jobpool_jobs
SET state = 'canceled', finished_at_ms = :now_ms, reason = chosen.reason
FROM (
  SELECT j.id, json_extract(wanted.value, '$[1]') AS reason
  FROM json_each(:rows) AS wanted
  CROSS JOIN jobpool_jobs AS j ON j.step = json_extract(wanted.value, '$[0]')
  WHERE j.step IS NOT NULL AND j.finished_at_ms IS NULL
    AND +j.state IN ('waiting', 'pending', 'runnable')
  LIMIT :limit
) AS chosen
WHERE jobpool_jobs.id = chosen.id

-- name: stop_members
-- Members of :steps that run are asked to stop.
UPDATE jobpool_jobs
SET cancel_requested = 1
WHERE id IN (
  SELECT j.id
  FROM json_each(:steps) AS wanted
  CROSS JOIN jobpool_jobs AS j ON j.step = wanted.value
  WHERE j.step IS NOT NULL AND j.finished_at_ms IS NULL
    AND +j.state = 'leased' AND j.cancel_requested = 0
)

-- name: flows_left
-- Of flows: id, whether plain steps have not ended, whether any have not, whether plain
-- ones have failed.
SELECT
  f.id,
  EXISTS (
    SELECT 1
    FROM jobpool_steps AS p
    WHERE p.flow = f.id AND p.state IN ('closed', 'ready', 'skipping') AND p.hook IS NULL
  ),
  EXISTS (
    SELECT 1
    FROM jobpool_steps AS a
    WHERE a.flow = f.id AND a.state IN ('closed', 'ready', 'skipping')
  ),
  EXISTS (
    SELECT 1
    FROM jobpool_steps AS b
    WHERE b.flow = f.id AND b.failed = 1 AND b.hook IS NULL
  )
FROM jobpool_flows AS f
WHERE f.id IN (SELECT value FROM json_each(:flows)) AND f.finished_at_ms IS NULL

-- name: closed_hooks
-- Of flows: step, flow, hook.
SELECT s.id, s.flow, s.hook
FROM jobpool_steps AS s
WHERE s.flow IN (SELECT value FROM json_each(:flows))
  AND s.state = 'closed' AND s.hook IS NOT NULL

-- name: end_flows
-- :rows holds [id, state]. Of one with a job that was erased, whom it was for goes too.
UPDATE jobpool_flows
SET
  state = ended.state,
  finished_at_ms = :now_ms,
  key = iif(is_erased = 1, NULL, key),
  tenant = iif(is_erased = 1, NULL, tenant)
FROM (
  SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS state
  FROM json_each(:rows)
) AS ended
WHERE jobpool_flows.id = ended.id

-- name: set_ending
-- Of flows that have none yet: nothing more of them begins. A paused one goes on, so that
-- it ends.
UPDATE jobpool_flows
SET ending = :ending, state = iif(:ending = 'cancel', 'open', state)
WHERE id IN (SELECT value FROM json_each(:flows))
  AND state IN ('open', 'paused')
  AND (ending IS NULL OR (ending = 'fail' AND :ending = 'cancel'))

-- name: note_flows
-- Their steps that have not ended are to be looked at.
INSERT OR IGNORE INTO jobpool_flow_notes (step)
SELECT s.id
FROM jobpool_steps AS s
WHERE s.flow IN (SELECT value FROM json_each(:flows))
  AND s.state IN ('closed', 'ready', 'skipping')

-- name: pause_flow
-- Nothing is changed: it is not open, or nothing more of it is to begin.
UPDATE jobpool_flows
SET state = 'paused'
WHERE id = :flow AND state = 'open' AND ending IS NULL

-- name: hold_members
-- Of a flow that is paused: they wait again, each for as long as it had left.
UPDATE jobpool_jobs
SET
  state = 'waiting',
  run_at_ms = max(run_at_ms - :now_ms, 0) + created_at_ms,
  expires_at_ms = max(expires_at_ms - :now_ms, 0) + created_at_ms
WHERE id IN (
  SELECT j.id
  FROM jobpool_steps AS s
  CROSS JOIN jobpool_jobs AS j ON j.step = s.id
  WHERE s.flow = :flow AND j.step IS NOT NULL AND j.finished_at_ms IS NULL
    AND +j.state IN ('pending', 'runnable')
)

-- name: resume_flow
-- Nothing is changed: it is not paused.
UPDATE jobpool_flows SET state = 'open' WHERE id = :flow AND state = 'paused'

-- name: has_plain_steps
-- Whether a flow that has not ended has plain steps that have not.
SELECT EXISTS (
  SELECT 1
  FROM jobpool_steps AS s
  JOIN jobpool_flows AS f ON f.id = s.flow
  WHERE s.flow = :flow AND s.hook IS NULL AND s.state IN ('closed', 'ready', 'skipping')
    AND f.state IN ('open', 'paused')
)

-- name: external_member
-- Its flow, its step's state, whether the step is external, and its own state.
SELECT s.flow, s.state, s.is_external, j.state
FROM jobpool_jobs AS j
JOIN jobpool_steps AS s ON s.id = j.step
WHERE j.id = :id

-- name: approve_member
-- As if somebody had run it once.
UPDATE jobpool_jobs
SET
  state = 'succeeded',
  finished_at_ms = :now_ms,
  outcome = 'succeeded',
  attempt = max(attempt, 1),
  codec = :codec
WHERE id = :id AND state = 'waiting'

-- name: unended_steps
-- Of flows, some: plain steps and hooks.
SELECT s.id
FROM jobpool_steps AS s
WHERE s.flow IN (SELECT value FROM json_each(:flows))
  AND s.state IN ('closed', 'ready', 'skipping')
ORDER BY s.id
LIMIT :limit

-- name: raw_flow_heads
-- As stored, to be repaired.
SELECT
  id, name, key, tenant, state, failure, ending, generation, builder, created_at_ms,
  touched_at_ms, finished_at_ms, is_erased
FROM jobpool_flows
WHERE id IN (SELECT value FROM json_each(:flows))

-- name: raw_flow_steps
-- As stored, to be repaired.
SELECT
  id, flow, number, name, state, hook, timeout_ms, until_ms, failed, is_external
FROM jobpool_steps
WHERE flow IN (SELECT value FROM json_each(:flows))

-- name: raw_flow_edges
-- As stored, to be repaired; before them the flow whose steps they join.
SELECT s.flow, e.flow, e.from_step, e.to_step, e.when_ended
FROM jobpool_steps AS s
CROSS JOIN jobpool_edges AS e ON e.to_step = s.id
WHERE s.flow IN (SELECT value FROM json_each(:flows))
UNION
SELECT s.flow, e.flow, e.from_step, e.to_step, e.when_ended
FROM jobpool_steps AS s
CROSS JOIN jobpool_edges AS e ON e.from_step = s.id
WHERE s.flow IN (SELECT value FROM json_each(:flows))

-- name: drop_flow_edge
-- It says nothing.
DELETE FROM jobpool_edges WHERE from_step = :from_step AND to_step = :to_step

-- name: rewrite_flow_step
-- A damaged one.
UPDATE jobpool_steps
SET
  number = :number,
  name = :name,
  state = :state,
  failed = :failed,
  hook = :hook,
  is_external = :is_external,
  timeout_ms = :timeout_ms,
  until_ms = :until_ms
WHERE id = :id

-- name: rewrite_flow
-- A damaged one. Not its name and its key: they decide nothing, and must be unique.
UPDATE jobpool_flows
SET
  state = :state,
  failure = :failure,
  ending = :ending,
  generation = :generation,
  created_at_ms = :created_at_ms,
  finished_at_ms = :finished_at_ms,
  is_erased = :is_erased
WHERE id = :id
