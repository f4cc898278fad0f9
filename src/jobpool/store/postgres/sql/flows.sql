-- Flows. What stores them also runs on a caller's own connection.

-- name: find_flow
-- The flow with a key.
SELECT id, convert_to(state, 'UTF8')
FROM jobpool.flows
WHERE name = %(name)s AND key = %(key)s::text AND key IS NOT NULL

-- name: insert_flow
-- No row: another one has the key.
INSERT INTO jobpool.flows (
  name, key, tenant, state, failure, builder, created_at_ms, touched_at_ms
)
VALUES (
  %(name)s, %(key)s::text, %(tenant)s::text, %(state)s, %(failure)s, %(builder)s::text,
  %(now_ms)s, %(now_ms)s
)
ON CONFLICT DO NOTHING
RETURNING id

-- name: insert_steps
-- :rows holds [number, name, state, hook, external, timeout, until].
INSERT INTO jobpool.steps (
  flow, number, name, state, hook, is_external, timeout_ms, until_ms
)
SELECT
  %(flow)s,
  (value ->> 0)::bigint,
  value ->> 1,
  value ->> 2,
  value ->> 3,
  (value ->> 4)::integer::boolean,
  (value ->> 5)::bigint,
  (value ->> 6)::bigint
FROM jsonb_array_elements(%(rows)s::jsonb)

-- name: step_ids
-- Of a flow, in order of the numbers.
SELECT id FROM jobpool.steps WHERE flow = %(flow)s ORDER BY number

-- name: insert_edges
-- :rows holds [from, to, when].
INSERT INTO jobpool.edges (flow, from_step, to_step, when_ended)
SELECT %(flow)s, (value ->> 0)::bigint, (value ->> 1)::bigint, value ->> 2
FROM jsonb_array_elements(%(rows)s::jsonb)

-- name: insert_members
-- As insert_jobs, without conflicts, with step, generation and adder.
INSERT INTO jobpool.jobs (
  id, kind, pool, state, priority, tenant,
  max_attempts, timeout_s, memory_bytes, created_at_ms, run_at_ms, expires_at_ms,
  codec, lane, quota_values, trace, payload, step, generation, added_by
)
SELECT
  nextval('jobpool.job_ids'),
  value ->> 0,
  value ->> 1,
  value ->> 2,
  (value ->> 3)::integer,
  value ->> 6,
  (value ->> 7)::bigint,
  (value ->> 8)::double precision,
  (value ->> 9)::bigint,
  %(now_ms)s,
  (value ->> 10)::bigint,
  (value ->> 11)::bigint,
  value ->> 12,
  (value ->> 13)::bigint,
  value ->> 14,
  value ->> 15,
  substr(%(blobs)s::bytea, (value ->> 19)::integer, (value ->> 20)::integer),
  (value ->> 16)::bigint,
  (value ->> 17)::integer,
  (value ->> 18)::bigint
FROM (
  SELECT place, value
  FROM jsonb_array_elements(%(rows)s::jsonb) WITH ORDINALITY AS given (value, place)
  ORDER BY place
) AS ordered

-- name: steps_of_adders
-- Of jobs that are members: id, step, generation, whether the step has ended.
SELECT j.id, j.step, j.generation, s.state IN ('done', 'skipped')
FROM jobpool.jobs AS j
JOIN jobpool.steps AS s ON s.id = j.step
WHERE j.id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))

-- name: note_steps
-- They are to be looked at.
INSERT INTO jobpool.flow_notes (step)
SELECT value::bigint FROM jsonb_array_elements_text(%(steps)s::jsonb)

-- name: touch_flow
-- Nothing is changed: somebody else builds it by now.
UPDATE jobpool.flows
SET touched_at_ms = %(now_ms)s
WHERE id = %(flow)s AND state = 'building' AND builder = %(builder)s

-- name: seize_flow
-- Whoever has begun to build it must not go on.
UPDATE jobpool.flows
SET builder = %(builder)s, touched_at_ms = %(now_ms)s
WHERE id = %(flow)s AND state = 'building'

-- name: open_flow
-- All of it is stored.
UPDATE jobpool.flows
SET state = 'open', builder = NULL
WHERE id = %(flow)s AND state = 'building' AND builder = %(builder)s

-- name: has_flow_notes
-- Whether a fold has something to do.
SELECT EXISTS (SELECT 1 FROM jobpool.flow_notes) OR EXISTS (
  SELECT 1
  FROM jobpool.steps
  WHERE until_ms IS NOT NULL AND state || '' = 'ready' AND until_ms <= %(now_ms)s
)

-- name: flow_noted
-- Steps to be looked at: note, step, flow. Those of no flow are gone.
SELECT n.id, n.step, f.id
FROM (SELECT id, step FROM jobpool.flow_notes ORDER BY id LIMIT %(limit)s) AS n
LEFT JOIN LATERAL (
  SELECT s.flow FROM jobpool.steps AS s WHERE s.id = n.step OFFSET 0
) AS s ON true
LEFT JOIN LATERAL (
  SELECT f.id FROM jobpool.flows AS f WHERE f.id = s.flow OFFSET 0
) AS f ON true
ORDER BY n.id

-- name: flow_overdue
-- External steps whose time has run out: step, flow.
SELECT id, flow
FROM jobpool.steps
WHERE until_ms IS NOT NULL AND state || '' = 'ready' AND until_ms <= %(now_ms)s
ORDER BY until_ms
LIMIT %(limit)s

-- name: lock_flows
-- Those that nobody else folds at this moment.
SELECT id
FROM jobpool.flows
WHERE id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(flows)s::jsonb))
)
ORDER BY id
FOR UPDATE SKIP LOCKED

-- name: wait_for_flow
-- Whoever folds it has ended.
SELECT id FROM jobpool.flows WHERE id = %(flow)s FOR UPDATE

-- name: delete_flow_notes
-- They were looked at.
DELETE FROM jobpool.flow_notes
WHERE id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(notes)s::jsonb))
)

-- name: flow_heads
-- Flows that have not ended: id, state, failure, ending.
SELECT id, state, failure, ending
FROM jobpool.flows
WHERE id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(flows)s::jsonb))
)
  AND finished_at_ms IS NULL

-- name: flow_steps
-- Steps, and how their members are: id, flow, state, failed, hook, external, timeout,
-- until, whether one has not ended, whether one waits, whether one is bad. Not by EXISTS:
-- that may read the waiting members of all flows, if statistics say that there are none.
SELECT
  s.id,
  s.flow,
  s.state,
  s.failed,
  s.hook,
  s.is_external,
  s.timeout_ms,
  s.until_ms,
  (
    SELECT 1
    FROM jobpool.jobs AS j
    WHERE j.step = s.id AND j.step IS NOT NULL AND j.finished_at_ms IS NULL
    LIMIT 1
  ) IS NOT NULL,
  (
    SELECT 1 FROM jobpool.jobs AS w WHERE w.step = s.id AND w.state = 'waiting' LIMIT 1
  ) IS NOT NULL,
  (
    SELECT 1
    FROM jobpool.jobs AS b
    WHERE b.step = s.id AND b.step IS NOT NULL AND b.replaced_by IS NULL
      AND b.state || '' IN ('dead', 'quarantined', 'canceled')
    LIMIT 1
  ) IS NOT NULL
FROM jobpool.steps AS s
WHERE s.id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(steps)s::jsonb))
)

-- name: steps_before
-- Edges to closed steps: to, state and failed of the step before, when. Of one that surely
-- stays so only that: a step before 10,000 others would be read with all its edges whenever
-- one of them ends. It is found among a few steps of its flow that have not ended.
WITH given AS MATERIALIZED (
  SELECT
    s.id,
    EXISTS (
      SELECT 1
      FROM (
        SELECT u.id
        FROM jobpool.steps AS u
        WHERE u.flow = s.flow AND u.state IN ('closed', 'ready', 'skipping')
        LIMIT 8
      ) AS a
      CROSS JOIN LATERAL (
        SELECT 1
        FROM jobpool.edges AS e
        WHERE e.from_step = a.id AND e.to_step = s.id
        OFFSET 0
      ) AS b
    ) AS waits
  FROM jobpool.steps AS s
  WHERE s.id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(steps)s::jsonb))
  )
    AND s.state || '' = 'closed'
)
SELECT g.id, 'closed', false, 'finished' FROM given AS g WHERE g.waits
UNION ALL
SELECT e.to_step, f.state, f.failed, e.when_ended
FROM given AS g
CROSS JOIN LATERAL (
  SELECT i.to_step, i.from_step, i.when_ended
  FROM jobpool.edges AS i
  WHERE i.to_step = g.id
  OFFSET 0
) AS e
CROSS JOIN LATERAL (
  SELECT b.state, b.failed FROM jobpool.steps AS b WHERE b.id = e.from_step OFFSET 0
) AS f
WHERE NOT g.waits

-- name: edges_out
-- Edges from steps: from, to, when.
SELECT e.from_step, e.to_step, e.when_ended
FROM jobpool.edges AS e
WHERE e.from_step = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(steps)s::jsonb))
)

-- name: set_steps
-- :rows holds [id, state, failed, until].
UPDATE jobpool.steps AS s
SET
  state = new.value ->> 1,
  failed = (new.value ->> 2)::integer::boolean,
  until_ms = (new.value ->> 3)::bigint
FROM jsonb_array_elements(%(rows)s::jsonb) AS new
WHERE s.id = (new.value ->> 0)::bigint
  AND s.id = ANY (
    ARRAY(SELECT (value ->> 0)::bigint FROM jsonb_array_elements(%(rows)s::jsonb))
  )

-- name: open_members
-- Members of :steps that wait, at most :limit. What they were to wait for, and how long
-- they have before they expire, is counted from now. Returns pools.
WITH chosen AS MATERIALIZED (
  SELECT found.id
  FROM jsonb_array_elements_text(%(steps)s::jsonb) AS wanted
  CROSS JOIN LATERAL (
    SELECT w.id
    FROM jobpool.jobs AS w
    WHERE w.step = wanted.value::bigint AND w.state = 'waiting'
    OFFSET 0
  ) AS found
  ORDER BY found.id
  LIMIT %(limit)s
),

held AS MATERIALIZED (
  SELECT w.id
  FROM jobpool.jobs AS w
  WHERE w.id = ANY (ARRAY(SELECT c.id FROM chosen AS c)) AND w.state || '' = 'waiting'
  ORDER BY w.id
  FOR UPDATE
)
UPDATE jobpool.jobs AS j
SET
  state = CASE WHEN run_at_ms <= created_at_ms THEN 'runnable' ELSE 'pending' END,
  run_at_ms = least(run_at_ms + %(now_ms)s - created_at_ms, 253402300799000),
  expires_at_ms = CASE
    WHEN expires_at_ms IS NOT NULL
      THEN least(expires_at_ms + %(now_ms)s - created_at_ms, 253402300799000)
  END
FROM held
WHERE j.id = held.id AND j.id = ANY (ARRAY(SELECT h.id FROM held AS h))
RETURNING j.pool

-- name: cancel_members
-- Members of steps that have not begun, at most :limit; :rows holds [step, reason].
WITH chosen AS MATERIALIZED (
  SELECT u.id, wanted.value ->> 1 AS reason
  FROM jsonb_array_elements(%(rows)s::jsonb) AS wanted
  JOIN jobpool.jobs AS u ON u.step = (wanted.value ->> 0)::bigint
  WHERE u.step IS NOT NULL AND u.finished_at_ms IS NULL
    AND u.state || '' IN ('waiting', 'pending', 'runnable')
  LIMIT %(limit)s
  FOR UPDATE OF u SKIP LOCKED
)
UPDATE jobpool.jobs AS j
SET state = 'canceled', finished_at_ms = %(now_ms)s, reason = chosen.reason
FROM chosen
WHERE j.id = chosen.id

-- name: stop_members
-- Members of :steps that run are asked to stop.
UPDATE jobpool.jobs
SET cancel_requested = true
WHERE id IN (
  SELECT r.id
  FROM jsonb_array_elements_text(%(steps)s::jsonb) AS wanted
  JOIN jobpool.jobs AS r ON r.step = wanted.value::bigint
  WHERE r.step IS NOT NULL AND r.finished_at_ms IS NULL
    AND r.state || '' = 'leased' AND NOT r.cancel_requested
  FOR UPDATE OF r SKIP LOCKED
)

-- name: missed_members
-- Those of :steps with members that have not begun, and those of :stopped with members
-- that run and were not asked to stop: others held their rows.
SELECT wanted.value::bigint
FROM jsonb_array_elements_text(%(steps)s::jsonb) AS wanted
WHERE (
  SELECT 1
  FROM jobpool.jobs AS j
  WHERE j.step = wanted.value::bigint AND j.step IS NOT NULL AND j.finished_at_ms IS NULL
    AND (
      j.state || '' <> 'leased'
      OR (
        NOT j.cancel_requested
        AND j.step IN (
          SELECT value::bigint FROM jsonb_array_elements_text(%(stopped)s::jsonb)
        )
      )
    )
  LIMIT 1
) IS NOT NULL

-- name: flows_left
-- Of flows: id, whether plain steps have not ended, whether any have not, whether plain
-- ones have failed.
SELECT
  f.id,
  EXISTS (
    SELECT 1
    FROM jobpool.steps AS p
    WHERE p.flow = f.id AND p.state IN ('closed', 'ready', 'skipping') AND p.hook IS NULL
  ),
  EXISTS (
    SELECT 1
    FROM jobpool.steps AS a
    WHERE a.flow = f.id AND a.state IN ('closed', 'ready', 'skipping')
  ),
  EXISTS (
    SELECT 1
    FROM jobpool.steps AS b
    WHERE b.flow = f.id AND b.failed AND b.hook IS NULL
  )
FROM jobpool.flows AS f
WHERE f.id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(flows)s::jsonb))
)
  AND f.finished_at_ms IS NULL

-- name: closed_hooks
-- Of flows: step, flow, hook.
SELECT s.id, s.flow, s.hook
FROM jobpool.steps AS s
WHERE s.flow IN (SELECT value::bigint FROM jsonb_array_elements_text(%(flows)s::jsonb))
  AND s.state = 'closed' AND s.hook IS NOT NULL

-- name: end_flows
-- :rows holds [id, state]. Of one with a job that was erased, whom it was for goes too.
UPDATE jobpool.flows AS f
SET
  state = ended.value ->> 1,
  finished_at_ms = %(now_ms)s,
  key = CASE WHEN NOT f.is_erased THEN f.key END,
  tenant = CASE WHEN NOT f.is_erased THEN f.tenant END
FROM jsonb_array_elements(%(rows)s::jsonb) AS ended
WHERE f.id = (ended.value ->> 0)::bigint

-- name: set_ending
-- Of flows that have none yet: nothing more of them begins. A paused one goes on, so that
-- it ends.
UPDATE jobpool.flows
SET
  ending = %(ending)s::text,
  state = CASE WHEN %(ending)s::text = 'cancel' THEN 'open' ELSE state END
WHERE id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(flows)s::jsonb))
  AND state IN ('open', 'paused')
  AND (ending IS NULL OR (ending = 'fail' AND %(ending)s::text = 'cancel'))

-- name: note_flows
-- Their steps that have not ended are to be looked at.
INSERT INTO jobpool.flow_notes (step)
SELECT s.id
FROM jobpool.steps AS s
WHERE s.flow IN (SELECT value::bigint FROM jsonb_array_elements_text(%(flows)s::jsonb))
  AND s.state IN ('closed', 'ready', 'skipping')

-- name: pause_flow
-- Nothing is changed: it is not open, or nothing more of it is to begin.
UPDATE jobpool.flows
SET state = 'paused'
WHERE id = %(flow)s AND state = 'open' AND ending IS NULL

-- name: hold_members
-- Of a flow that is paused: they wait again, each for as long as it had left.
UPDATE jobpool.jobs
SET
  state = 'waiting',
  run_at_ms = greatest(run_at_ms - %(now_ms)s, 0) + created_at_ms,
  expires_at_ms = CASE
    WHEN expires_at_ms IS NOT NULL
      THEN greatest(expires_at_ms - %(now_ms)s, 0) + created_at_ms
  END
WHERE id IN (
  SELECT j.id
  FROM jobpool.steps AS s
  JOIN jobpool.jobs AS j ON j.step = s.id
  WHERE s.flow = %(flow)s AND j.step IS NOT NULL AND j.finished_at_ms IS NULL
    AND j.state || '' IN ('pending', 'runnable')
)
AND state || '' IN ('pending', 'runnable')

-- name: resume_flow
-- Nothing is changed: it is not paused.
UPDATE jobpool.flows SET state = 'open' WHERE id = %(flow)s AND state = 'paused'

-- name: has_plain_steps
-- Whether a flow that has not ended has plain steps that have not.
SELECT EXISTS (
  SELECT 1
  FROM jobpool.steps AS s
  JOIN jobpool.flows AS f ON f.id = s.flow
  WHERE s.flow = %(flow)s AND s.hook IS NULL AND s.state IN ('closed', 'ready', 'skipping')
    AND f.state IN ('open', 'paused')
)

-- name: external_member
-- Its flow, its step's state, whether the step is external, and its own state.
SELECT s.flow, s.state, s.is_external, j.state
FROM jobpool.jobs AS j
JOIN jobpool.steps AS s ON s.id = j.step
WHERE j.id = %(id)s

-- name: approve_member
-- As if somebody had run it once.
UPDATE jobpool.jobs
SET
  state = 'succeeded',
  finished_at_ms = %(now_ms)s,
  outcome = 'succeeded',
  attempt = greatest(attempt, 1),
  codec = %(codec)s::text,
  result = %(result)s::bytea
WHERE id = %(id)s AND state || '' = 'waiting'

-- name: unended_steps
-- Of flows, some: plain steps and hooks.
SELECT s.id
FROM jobpool.steps AS s
WHERE s.flow IN (SELECT value::bigint FROM jsonb_array_elements_text(%(flows)s::jsonb))
  AND s.state IN ('closed', 'ready', 'skipping')
ORDER BY s.id
LIMIT %(limit)s

-- name: raw_flow_heads
-- As stored, to be repaired.
SELECT
  id, name, key, tenant, state, failure, ending, generation, builder, created_at_ms,
  touched_at_ms, finished_at_ms, is_erased::integer
FROM jobpool.flows
WHERE id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(flows)s::jsonb))

-- name: raw_flow_steps
-- As stored, to be repaired.
SELECT
  id, flow, number, name, state, hook, timeout_ms, until_ms, failed::integer,
  is_external::integer
FROM jobpool.steps
WHERE flow IN (SELECT value::bigint FROM jsonb_array_elements_text(%(flows)s::jsonb))

-- name: raw_flow_edges
-- As stored, to be repaired; before them the flow whose steps they join.
SELECT s.flow, e.flow, e.from_step, e.to_step, e.when_ended
FROM jobpool.steps AS s
INNER JOIN jobpool.edges AS e ON e.to_step = s.id
WHERE s.flow IN (SELECT value::bigint FROM jsonb_array_elements_text(%(flows)s::jsonb))
UNION
SELECT s.flow, e.flow, e.from_step, e.to_step, e.when_ended
FROM jobpool.steps AS s
INNER JOIN jobpool.edges AS e ON e.from_step = s.id
WHERE s.flow IN (SELECT value::bigint FROM jsonb_array_elements_text(%(flows)s::jsonb))

-- name: drop_flow_edge
-- It says nothing.
DELETE FROM jobpool.edges WHERE from_step = %(from_step)s AND to_step = %(to_step)s

-- name: rewrite_flow_step
-- A damaged one.
UPDATE jobpool.steps
SET
  number = %(number)s,
  name = %(name)s,
  state = %(state)s,
  failed = %(failed)s::integer::boolean,
  hook = %(hook)s::text,
  is_external = %(is_external)s::integer::boolean,
  timeout_ms = %(timeout_ms)s::bigint,
  until_ms = %(until_ms)s::bigint
WHERE id = %(id)s

-- name: rewrite_flow
-- A damaged one. Not its name and its key: they decide nothing, and must be unique.
UPDATE jobpool.flows
SET
  state = %(state)s,
  failure = %(failure)s,
  ending = %(ending)s::text,
  generation = %(generation)s,
  created_at_ms = %(created_at_ms)s,
  finished_at_ms = %(finished_at_ms)s::bigint,
  is_erased = %(is_erased)s::integer::boolean
WHERE id = %(id)s
