-- Leasing: one statement per step, whatever the size of the batch.

-- name: lease_status
-- What a lease needs first: whether its run has ended, whether jobs have expired before
-- their first attempt, when the first pending job falls due, whether there are suspects
-- or misfits, whether the run's own lease has run out (never, on one host), whether its
-- format is below the store's least, whether the whole store is paused, which version of
-- quotas is in force, and whether flows are to be folded. No row: the run is unknown.
SELECT
  r.ended_at_ms IS NOT NULL,
  EXISTS (
    SELECT 1
    FROM jobpool_jobs AS e
    WHERE e.expires_at_ms IS NOT NULL AND e.attempt = 0 AND e.finished_at_ms IS NULL
      AND e.expires_at_ms <= :now_ms AND +e.state <> 'waiting'
  ),
  (SELECT min(d.run_at_ms) FROM jobpool_jobs AS d WHERE d.state = 'pending'),
  EXISTS (SELECT 1 FROM jobpool_suspects),
  EXISTS (SELECT 1 FROM jobpool_misfits),
  0,
  coalesce(r.format, 1) < (SELECT m.value FROM jobpool_meta AS m WHERE m.name = 'min_format'),
  EXISTS (
    SELECT 1
    FROM jobpool_pauses AS p
    WHERE p.what = 'store' AND (p.until_ms IS NULL OR p.until_ms > :now_ms)
  ),
  (SELECT v.value FROM jobpool_meta AS v WHERE v.name = 'limits_version'),
  EXISTS (SELECT 1 FROM jobpool_flow_notes) OR EXISTS (
    SELECT 1
    FROM jobpool_steps AS x
    WHERE x.until_ms IS NOT NULL AND x.state = 'ready' AND x.until_ms <= :now_ms
  )
FROM jobpool_runs AS r
WHERE r.id = :run_id

-- name: run_has_ended
-- As lease_status, outside of leasing.
SELECT ended_at_ms IS NOT NULL FROM jobpool_runs WHERE id = :run_id

-- name: expired_jobs
-- Jobs that expired before their first attempt.
SELECT id
FROM jobpool_jobs
WHERE expires_at_ms IS NOT NULL AND attempt = 0 AND finished_at_ms IS NULL
  AND expires_at_ms <= :now_ms AND +state <> 'waiting'
ORDER BY expires_at_ms
LIMIT :limit

-- name: expire_jobs
-- They are canceled.
UPDATE jobpool_jobs
SET
  state = 'canceled',
  finished_at_ms = :now_ms,
  reason = CASE
    WHEN snoozes > 0 THEN 'expired while it was snoozed'
    ELSE 'expired before an attempt began'
  END
WHERE id IN (SELECT value FROM json_each(:ids))
  AND attempt = 0 AND finished_at_ms IS NULL

-- name: promote_due
-- Pending jobs that are due, a bounded number at a time.
UPDATE jobpool_jobs
SET state = 'runnable'
WHERE id IN (
  SELECT id
  FROM jobpool_jobs
  WHERE state = 'pending' AND run_at_ms <= :now_ms
  ORDER BY run_at_ms
  LIMIT :limit
)

-- name: lease_candidates
-- The best of each kind from its own range of the index, then the best of these: a
-- backlog of unknown or paused kinds is never read.
SELECT
  j.id, j.kind, j.pool, j.attempt, p.payload, j.checkpoint,
  j.max_attempts, j.timeout_s, j.memory_bytes,
  j.failures, j.crashes, j.interruptions, j.recoveries, j.throttled,
  j.reset_attempt, j.expires_at_ms, j.token, j.leased_at_ms,
  j.snoozes, j.snoozed_since_ms,
  j.priority, j.key, j.tenant, j.codec, j.tick, j.run_at_ms, j.step,
  j.trace
FROM (
  SELECT c.id, c.priority, c.run_at_ms
  FROM json_each(:kinds) AS known
  CROSS JOIN jobpool_jobs AS c
  WHERE known.value NOT IN (
      SELECT name
      FROM jobpool_pauses
      WHERE what = 'kind' AND (until_ms IS NULL OR until_ms > :now_ms)
    )
    AND :pool NOT IN (
      SELECT name
      FROM jobpool_pauses
      WHERE what = 'pool' AND (until_ms IS NULL OR until_ms > :now_ms)
    )
    AND c.id IN (
      SELECT r.id
      FROM jobpool_jobs AS r
      WHERE r.state = 'runnable' AND r.pool = :pool AND r.kind = known.value
        AND r.id NOT IN (SELECT job_id FROM jobpool_suspects)
        AND NOT EXISTS (
          SELECT 1
          FROM jobpool_misfits AS m
          CROSS JOIN jobpool_kinds AS own
            ON own.kind = r.kind AND own.run_id = :run_id
          WHERE m.job_id = r.id AND m.until_ms > :now_ms
            AND own.schema_digest = m.schema_digest
        )
      ORDER BY r.priority DESC, r.run_at_ms, r.id
      LIMIT :limit
    )
  ORDER BY c.priority DESC, c.run_at_ms, c.id
  LIMIT :limit
) AS best
CROSS JOIN jobpool_jobs AS j ON j.id = best.id
LEFT JOIN jobpool_payloads AS p ON p.job_id = j.id
ORDER BY best.priority DESC, best.run_at_ms, best.id

-- name: take_tokens
-- The counter increases in the transaction that grants the leases, within its range.
UPDATE jobpool_meta
SET value = value + :leases
WHERE name = 'tokens'
  AND typeof(value) = 'integer' AND value BETWEEN 0 AND :most - :leases
RETURNING value

-- name: reset_tokens
-- Never run by jobpool: an error tells operators to run it if the counter is damaged.
INSERT OR REPLACE INTO jobpool_meta (name, value) VALUES ('tokens', 1000000000000)

-- name: lease_jobs
-- :tokens holds {id: token}. The attempt's number stops at 2^31 - 1.
UPDATE jobpool_jobs
SET
  state = 'leased',
  token = granted.token,
  supervisor = :run_id,
  leased_at_ms = :now_ms,
  attempt = min(attempt + 1, 2147483647),
  slot = NULL,
  started_at_ms = NULL,
  last_heartbeat_at_ms = NULL,
  progress = NULL
FROM (
  SELECT CAST(key AS INTEGER) AS id, value AS token FROM json_each(:tokens)
) AS granted
WHERE jobpool_jobs.id = granted.id AND +jobpool_jobs.state = 'runnable'

-- name: next_due
-- When the first pending job falls due.
SELECT min(run_at_ms) FROM jobpool_jobs WHERE state = 'pending'

-- name: history_of
-- :rows holds [job, attempts before the last reset, whether there may be more]. The
-- newest 1,000 of each job; if there are more, also the first under each rule.
SELECT a.job_id, a.outcome, a.rule, a.finished_at_ms
FROM json_each(:rows) AS wanted
CROSS JOIN jobpool_attempts AS a
WHERE a.id IN (
  SELECT past.id
  FROM jobpool_attempts AS past
  WHERE past.job_id = json_extract(wanted.value, '$[0]')
    AND past.attempt > json_extract(wanted.value, '$[1]')
  ORDER BY past.id DESC
  LIMIT 1000
) OR a.id IN (
  SELECT min(past.id)
  FROM jobpool_attempts AS past
  WHERE json_extract(wanted.value, '$[2]')
    AND past.job_id = json_extract(wanted.value, '$[0]')
    AND past.attempt > json_extract(wanted.value, '$[1]')
    AND past.rule IS NOT NULL
  GROUP BY past.rule
)
ORDER BY a.job_id, a.id

-- name: leases_of
-- As lease_candidates, for the leases that a run already holds.
SELECT
  j.id, j.kind, j.pool, j.attempt, p.payload, j.checkpoint,
  j.max_attempts, j.timeout_s, j.memory_bytes,
  j.failures, j.crashes, j.interruptions, j.recoveries, j.throttled,
  j.reset_attempt, j.expires_at_ms, j.token, j.leased_at_ms,
  j.snoozes, j.snoozed_since_ms,
  j.priority, j.key, j.tenant, j.codec, j.tick, j.run_at_ms, j.step,
  j.trace
FROM jobpool_jobs AS j
LEFT JOIN jobpool_payloads AS p ON p.job_id = j.id
WHERE j.state = 'leased' AND j.supervisor = :run_id
ORDER BY j.id

-- name: kinds_in_pools
-- Of which there are runnable jobs in these pools: one step of the index for each.
WITH RECURSIVE found (pool, kind) AS (
  SELECT
    asked.value,
    (
      SELECT min(j.kind) FROM jobpool_jobs AS j
      WHERE j.state = 'runnable' AND j.pool = asked.value
    )
  FROM json_each(:pools) AS asked
  UNION ALL
  SELECT
    f.pool,
    (
      SELECT min(j.kind) FROM jobpool_jobs AS j
      WHERE j.state = 'runnable' AND j.pool = f.pool AND j.kind > f.kind
    )
  FROM found AS f
  WHERE f.kind IS NOT NULL
)
SELECT pool, kind FROM found WHERE kind IS NOT NULL ORDER BY pool, kind LIMIT :limit

-- name: count_runnable
-- Of these kinds, up to a limit.
SELECT count(*)
FROM (
  SELECT 1
  FROM json_each(:kinds) AS known
  CROSS JOIN jobpool_jobs AS r
  WHERE r.state = 'runnable' AND r.pool = :pool AND r.kind = known.value
    AND r.id NOT IN (SELECT job_id FROM jobpool_suspects)
    AND r.id NOT IN (SELECT job_id FROM jobpool_misfits WHERE until_ms > :now_ms)
    AND known.value NOT IN (
      SELECT name
      FROM jobpool_pauses
      WHERE what = 'kind' AND (until_ms IS NULL OR until_ms > :now_ms)
    )
    AND :pool NOT IN (
      SELECT name
      FROM jobpool_pauses
      WHERE what = 'pool' AND (until_ms IS NULL OR until_ms > :now_ms)
    )
    AND NOT EXISTS (
      SELECT 1
      FROM jobpool_pauses
      WHERE what = 'store' AND (until_ms IS NULL OR until_ms > :now_ms)
    )
  LIMIT :limit
)

-- name: count_due
-- Jobs of these kinds among those that the next lease would promote.
SELECT count(*)
FROM (
  SELECT pool, kind
  FROM jobpool_jobs
  WHERE state = 'pending' AND run_at_ms <= :now_ms
  ORDER BY run_at_ms
  LIMIT :promoted
) AS next
WHERE next.pool = :pool
  AND next.kind IN (SELECT value FROM json_each(:kinds))
  AND next.kind NOT IN (
    SELECT name
    FROM jobpool_pauses
    WHERE what = 'kind' AND (until_ms IS NULL OR until_ms > :now_ms)
  )
  AND :pool NOT IN (
    SELECT name
    FROM jobpool_pauses
    WHERE what = 'pool' AND (until_ms IS NULL OR until_ms > :now_ms)
  )
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_pauses
    WHERE what = 'store' AND (until_ms IS NULL OR until_ms > :now_ms)
  )
