-- Leasing: one statement per step, whatever the size of the batch. Rows that another
-- transaction holds are skipped (SKIP LOCKED), so supervisors never wait for each other.
-- The choice is a MATERIALIZED CTE: a sub-select with LIMIT … FOR UPDATE may run again
-- for every outer row, and would lock more than its limit. Chosen rows are found by their
-- id: `state || ''` is a guard that no index can answer (settle.sql).
--
-- The plans of lease_status, lease_candidates and lease_jobs are kept, because planning
-- takes longer than executing. Whatever the table holds then, only one plan is possible.

-- name: lease_status
-- What a lease needs first: whether its run has ended, whether jobs have expired before
-- their first attempt, when the first pending job falls due, whether there are suspects
-- or misfits, whether the run's own lease has run out, whether its format is below the
-- store's least, whether the whole store is paused, which version of quotas is in force,
-- and whether flows are to be folded. No row: the run is unknown.
-- The lock keeps others from seizing the run until this transaction has ended. Uses the
-- transaction's own clock unless :now_ms is given.
WITH moment AS MATERIALIZED (
  SELECT
    coalesce(
      %(now_ms)s::bigint, floor(extract(epoch FROM now()) * 1000)::bigint
    ) AS now_ms
)
SELECT
  r.ended_at_ms IS NOT NULL,
  EXISTS (
    SELECT 1
    FROM jobpool.jobs AS e
    WHERE e.expires_at_ms IS NOT NULL AND e.attempt = 0 AND e.finished_at_ms IS NULL
      AND e.expires_at_ms <= (SELECT now_ms FROM moment)
      AND e.state || '' <> 'waiting'
  ),
  (SELECT min(d.run_at_ms) FROM jobpool.jobs AS d WHERE d.state = 'pending'),
  EXISTS (SELECT 1 FROM jobpool.suspects),
  EXISTS (SELECT 1 FROM jobpool.misfits),
  r.lease_until_ms <= (SELECT now_ms FROM moment),
  coalesce(r.format, 1) < (SELECT m.value FROM jobpool.meta AS m WHERE m.name = 'min_format'),
  EXISTS (
    SELECT 1
    FROM jobpool.pauses AS p
    WHERE p.what = 'store'
      AND (p.until_ms IS NULL OR p.until_ms > (SELECT now_ms FROM moment))
  ),
  (SELECT v.value FROM jobpool.meta AS v WHERE v.name = 'limits_version'),
  EXISTS (SELECT 1 FROM jobpool.flow_notes) OR EXISTS (
    SELECT 1
    FROM jobpool.steps AS x
    WHERE x.until_ms IS NOT NULL AND x.state || '' = 'ready'
      AND x.until_ms <= (SELECT now_ms FROM moment)
  )
FROM jobpool.runs AS r
WHERE r.id = %(run_id)s
FOR KEY SHARE OF r

-- name: run_has_ended
-- As lease_status, outside of leasing.
SELECT ended_at_ms IS NOT NULL
FROM jobpool.runs
WHERE id = %(run_id)s
FOR KEY SHARE

-- name: expired_jobs
-- Jobs that expired before their first attempt.
SELECT id
FROM jobpool.jobs
WHERE expires_at_ms IS NOT NULL AND attempt = 0 AND finished_at_ms IS NULL
  AND expires_at_ms <= %(now_ms)s AND state || '' <> 'waiting'
ORDER BY expires_at_ms
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: expire_jobs
-- They are canceled.
UPDATE jobpool.jobs
SET
  state = 'canceled',
  finished_at_ms = %(now_ms)s,
  reason = CASE
    WHEN snoozes > 0 THEN 'expired while it was snoozed'
    ELSE 'expired before an attempt began'
  END
WHERE id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  AND attempt = 0 AND finished_at_ms IS NULL

-- name: promote_due
-- Pending jobs that are due, a bounded number at a time.
WITH due AS MATERIALIZED (
  SELECT id
  FROM jobpool.jobs
  WHERE state = 'pending' AND run_at_ms <= %(now_ms)s
  ORDER BY run_at_ms
  LIMIT %(limit)s
  FOR UPDATE SKIP LOCKED
)
UPDATE jobpool.jobs
SET state = 'runnable'
WHERE id = ANY (ARRAY(SELECT id FROM due))

-- name: lease_candidates
-- The best of each kind from its own range of the index, then the best of these: a
-- backlog of unknown or paused kinds is never read. Of these :reach are looked at, more
-- than are wanted, because others may hold the first ones.
WITH known AS MATERIALIZED (
  SELECT k.kind
  FROM jsonb_array_elements_text(%(kinds)s::jsonb) AS k (kind)
  WHERE NOT EXISTS (
    SELECT 1
    FROM jobpool.pauses AS p
    WHERE (
        (p.what = 'kind' AND p.name = k.kind)
        OR (p.what = 'pool' AND p.name = %(pool)s::text)
      )
      AND (
        p.until_ms IS NULL
        OR p.until_ms > coalesce(
          %(now_ms)s::bigint, floor(extract(epoch FROM now()) * 1000)::bigint
        )
      )
  )
),
best AS MATERIALIZED (
  SELECT c.id, c.priority, c.run_at_ms
  FROM known
  CROSS JOIN LATERAL (
    SELECT r.id, r.priority, r.run_at_ms
    FROM jobpool.jobs AS r
    WHERE r.state = 'runnable' AND r.pool = %(pool)s::text AND r.kind = known.kind
      AND r.id <> ALL (ARRAY(SELECT job_id FROM jobpool.suspects))
      AND (
        NOT (SELECT EXISTS (SELECT 1 FROM jobpool.misfits))
        OR NOT EXISTS (
          SELECT 1
          FROM jobpool.misfits AS m
          JOIN jobpool.kinds AS own
            ON own.kind = r.kind AND own.schema_digest = m.schema_digest
          WHERE m.job_id = r.id AND own.run_id = %(run_id)s::text
            AND m.until_ms > coalesce(
              %(now_ms)s::bigint, floor(extract(epoch FROM now()) * 1000)::bigint
            )
          OFFSET 0
        )
      )
    ORDER BY r.priority DESC, r.run_at_ms, r.id
    LIMIT %(reach)s::bigint
  ) AS c
  ORDER BY c.priority DESC, c.run_at_ms, c.id
  LIMIT %(reach)s::bigint
)
SELECT
  j.id, j.kind, j.pool, j.attempt, j.payload, j.checkpoint,
  j.max_attempts, j.timeout_s, j.memory_bytes,
  j.failures, j.crashes, j.interruptions, j.recoveries, j.throttled,
  j.reset_attempt, j.expires_at_ms, j.token, j.leased_at_ms,
  j.snoozes, j.snoozed_since_ms,
  j.priority, j.key, j.tenant, j.codec, j.tick, j.run_at_ms, j.step,
  j.trace
FROM jobpool.jobs AS j
WHERE j.id = ANY (ARRAY(SELECT id FROM best)) AND j.state || '' = 'runnable'
ORDER BY j.priority DESC, j.run_at_ms, j.id
LIMIT %(limit)s::bigint
FOR UPDATE OF j SKIP LOCKED

-- name: lease_jobs
-- :rows holds [id, random bits]; lease_candidates has locked the rows, so they do not
-- move. The sequence advances at once and never goes back, even if the transaction is
-- rolled back. A promoted standby may have missed its last numbers: the random bits still
-- keep a token from being granted twice. The attempt's number stops at 2^31 - 1.
WITH granted AS MATERIALIZED (
  SELECT
    chosen.id,
    nextval('jobpool.tokens') << 20 | chosen.random_bits AS token
  FROM (
    SELECT (value ->> 0)::bigint AS id, (value ->> 1)::bigint AS random_bits
    FROM jsonb_array_elements(%(rows)s::jsonb) WITH ORDINALITY AS given (value, place)
    ORDER BY given.place
  ) AS chosen
)
UPDATE jobpool.jobs AS j
SET
  state = 'leased',
  token = granted.token,
  supervisor = %(run_id)s,
  leased_at_ms = %(now_ms)s,
  attempt = least(j.attempt::bigint + 1, 2147483647)::integer,
  slot = NULL,
  started_at_ms = NULL,
  last_heartbeat_at_ms = NULL,
  progress = NULL
FROM granted
CROSS JOIN LATERAL (
  SELECT held.ctid AS place
  FROM jobpool.jobs AS held
  WHERE held.id = granted.id AND held.state || '' = 'runnable'
  OFFSET 0
) AS found
WHERE j.ctid = found.place
RETURNING j.id, j.token

-- name: next_due
-- When the first pending job falls due.
SELECT min(run_at_ms) FROM jobpool.jobs WHERE state = 'pending'

-- name: history_of
-- :rows holds [job, attempts before the last reset, whether there may be more]. The
-- newest 1,000 of each job; if there are more, also the first under each rule.
SELECT a.job_id, a.outcome, a.rule, a.finished_at_ms
FROM (
  SELECT
    (value ->> 0)::bigint AS id,
    (value ->> 1)::bigint AS behind,
    (value ->> 2)::boolean AS has_more
  FROM jsonb_array_elements(%(rows)s::jsonb)
) AS wanted
CROSS JOIN LATERAL (
  (
    SELECT past.job_id, past.id, past.outcome, past.rule, past.finished_at_ms
    FROM jobpool.attempts AS past
    WHERE past.job_id = wanted.id AND past.attempt > wanted.behind
    ORDER BY past.id DESC
    LIMIT 1000
  )
  UNION
  (
    SELECT DISTINCT ON (past.rule)
      past.job_id, past.id, past.outcome, past.rule, past.finished_at_ms
    FROM jobpool.attempts AS past
    WHERE wanted.has_more
      AND past.job_id = wanted.id AND past.attempt > wanted.behind
      AND past.rule IS NOT NULL
    ORDER BY past.rule, past.id
  )
) AS a
ORDER BY a.job_id, a.id

-- name: leases_of
-- As lease_candidates, for the leases that a run already holds.
SELECT
  j.id, j.kind, j.pool, j.attempt, j.payload, j.checkpoint,
  j.max_attempts, j.timeout_s, j.memory_bytes,
  j.failures, j.crashes, j.interruptions, j.recoveries, j.throttled,
  j.reset_attempt, j.expires_at_ms, j.token, j.leased_at_ms,
  j.snoozes, j.snoozed_since_ms,
  j.priority, j.key, j.tenant, j.codec, j.tick, j.run_at_ms, j.step,
  j.trace
FROM jobpool.jobs AS j
WHERE j.state = 'leased' AND j.supervisor = %(run_id)s
ORDER BY j.id + 0

-- name: kinds_in_pools
-- Of which there are runnable jobs in these pools: one step of the index for each.
WITH RECURSIVE found (pool, kind) AS (
  SELECT
    asked.pool COLLATE "C",
    (
      SELECT min(j.kind) FROM jobpool.jobs AS j
      WHERE j.state = 'runnable' AND j.pool = asked.pool
    )
  FROM jsonb_array_elements_text(%(pools)s::jsonb) AS asked (pool)
  UNION ALL
  SELECT
    f.pool,
    (
      SELECT min(j.kind) FROM jobpool.jobs AS j
      WHERE j.state = 'runnable' AND j.pool = f.pool AND j.kind > f.kind
    )
  FROM found AS f
  WHERE f.kind IS NOT NULL
)
SELECT pool, kind FROM found WHERE kind IS NOT NULL ORDER BY pool, kind LIMIT %(limit)s

-- name: count_runnable
-- Of these kinds, up to a limit.
SELECT count(*)
FROM (
  SELECT 1
  FROM jsonb_array_elements_text(%(kinds)s::jsonb) AS known (kind)
  CROSS JOIN LATERAL (
    SELECT r.id
    FROM jobpool.jobs AS r
    WHERE r.state = 'runnable' AND r.pool = %(pool)s::text AND r.kind = known.kind
      AND r.id <> ALL (ARRAY(SELECT job_id FROM jobpool.suspects))
      AND r.id <> ALL (
        ARRAY(SELECT job_id FROM jobpool.misfits WHERE until_ms > %(now_ms)s)
      )
    ORDER BY r.priority DESC, r.run_at_ms, r.id
    LIMIT %(limit)s
  ) AS first
  WHERE NOT EXISTS (
      SELECT 1
      FROM jobpool.pauses AS p
      WHERE (
          (p.what = 'kind' AND p.name = known.kind)
          OR (p.what = 'pool' AND p.name = %(pool)s::text)
          OR p.what = 'store'
        )
        AND (p.until_ms IS NULL OR p.until_ms > %(now_ms)s)
    )
  LIMIT %(limit)s
) AS found

-- name: count_due
-- Jobs of these kinds among those that the next lease would promote.
SELECT count(*)
FROM (
  SELECT pool, kind
  FROM jobpool.jobs
  WHERE state = 'pending' AND run_at_ms <= %(now_ms)s
  ORDER BY run_at_ms
  LIMIT %(promoted)s
) AS soon
WHERE soon.pool = %(pool)s::text
  AND soon.kind IN (SELECT value FROM jsonb_array_elements_text(%(kinds)s::jsonb))
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool.pauses AS p
    WHERE (
        (p.what = 'kind' AND p.name = soon.kind)
        OR (p.what = 'pool' AND p.name = %(pool)s::text)
        OR p.what = 'store'
      )
      AND (p.until_ms IS NULL OR p.until_ms > %(now_ms)s)
  )
