-- Suspects, deaths of supervisors, and kinds that crash in a row.

-- name: note_leaving
-- Marks a run that drains or stops.
UPDATE jobpool.runs
SET leaving_at_ms = coalesce(leaving_at_ms, %(now_ms)s)
WHERE id = %(run_id)s AND ended_at_ms IS NULL

-- name: is_leaving
-- Whether a run is so marked.
SELECT leaving_at_ms IS NOT NULL FROM jobpool.runs WHERE id = %(run_id)s

-- name: note_death
-- Recorded twice it is still one death, with the larger number of jobs.
UPDATE jobpool.runs
SET
  died_at_ms = %(now_ms)s,
  died_with_jobs = greatest(coalesce(died_with_jobs, 0), %(ran)s::bigint)
WHERE id = %(run_id)s

-- name: other_deaths
-- Since a moment: those with jobs, and those without. Of a run that died with its host,
-- runs that died in the same boot are not other deaths.
SELECT
  count(*) FILTER (WHERE died_with_jobs > 0),
  count(*) FILTER (WHERE died_with_jobs = 0)
FROM jobpool.runs
WHERE died_at_ms >= %(since_ms)s AND id <> %(run_id)s
  AND NOT (
    %(with_host)s::int = 1
    AND boot_id IN (
      SELECT dead.boot_id FROM jobpool.runs AS dead WHERE dead.id = %(run_id)s
    )
  )

-- name: ran_beside
-- How many attempts other runs of its host, which died with a run, may have been running
-- then: they still hold their leases, or lost them after the run's last sign of life.
-- :living are known to be alive. Unless the host has ended, so are runs that renewed after
-- half of the dead run's last lease had passed.
SELECT
  coalesce(sum(
    CASE
      WHEN r.died_at_ms > dead.heartbeat_at_ms
        AND r.died_at_ms > coalesce(
          (
            SELECT max(j.leased_at_ms)
            FROM jobpool.jobs AS j
            WHERE j.state = 'leased' AND j.supervisor = dead.id
          ),
          0
        )
      THEN least(r.died_with_jobs, 2147483647)
      ELSE 0
    END
    + (
      SELECT count(*)
      FROM jobpool.jobs AS j
      WHERE j.state = 'leased' AND j.supervisor = r.id
    )
  ), 0)::bigint
FROM jobpool.runs AS dead
JOIN jobpool.runs AS r ON r.boot_id = dead.boot_id AND r.id <> dead.id
WHERE dead.id = %(run_id)s
  AND r.id NOT IN (
    SELECT value FROM jsonb_array_elements_text(%(living)s::jsonb)
  )
  AND (
    %(with_host)s::int = 1
    OR 2 * r.heartbeat_at_ms::numeric
      <= dead.heartbeat_at_ms::numeric + dead.lease_until_ms
  )

-- name: suspect
-- :ids of jobs.
INSERT INTO jobpool.suspects (job_id, since_ms)
SELECT value::bigint, %(now_ms)s FROM jsonb_array_elements_text(%(ids)s::jsonb)
ON CONFLICT DO NOTHING

-- name: clear_jobs
-- :ids of jobs.
DELETE FROM jobpool.suspects
WHERE job_id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))

-- name: clear_leases
-- :rows holds [id, token] of suspects that have run long enough.
DELETE FROM jobpool.suspects
WHERE job_id IN (
  SELECT j.id
  FROM jsonb_array_elements(%(rows)s::jsonb) AS wanted (value)
  JOIN jobpool.jobs AS j ON j.id = (wanted.value ->> 0)::bigint
  WHERE j.token = (wanted.value ->> 1)::bigint AND j.state || '' = 'leased'
)

-- name: suspects
-- Unfinished jobs that are suspects; each is looked for alone, as in key_holders.
SELECT s.job_id, j.kind, j.pool, j.state, s.since_ms
FROM jobpool.suspects AS s
CROSS JOIN LATERAL (SELECT * FROM jobpool.jobs WHERE id = s.job_id LIMIT 1) AS j
WHERE j.state || '' IN ('pending', 'waiting', 'runnable', 'leased')
ORDER BY s.job_id

-- name: suspects_of
-- Suspects among the leases of a run.
SELECT s.job_id
FROM jobpool.suspects AS s
JOIN jobpool.jobs AS j ON j.id = s.job_id
WHERE j.state || '' = 'leased' AND j.supervisor = %(run_id)s

-- name: lock_suspects
-- One supervisor at a time chooses among them; no row: another one is choosing. The next
-- statement sees what that one has leased.
SELECT 1
WHERE pg_try_advisory_xact_lock(1785684594, hashtext('jobpool.suspects'))

-- name: suspects_due
-- :kinds holds [pool, kind]. Counts runnable suspects of these kinds, but for :held ones,
-- and leased ones.
SELECT
  count(*) FILTER (
    WHERE j.state || '' = 'runnable'
      AND j.id <> ALL (
        ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(held)s::jsonb))
      )
      AND NOT EXISTS (
      SELECT 1
      FROM jobpool.misfits AS m
      JOIN jobpool.kinds AS own
        ON own.kind = j.kind AND own.schema_digest = m.schema_digest
      WHERE m.job_id = j.id AND own.run_id = %(run_id)s::text
        AND m.until_ms > %(now_ms)s
    )
      AND EXISTS (
        SELECT 1
        FROM jsonb_array_elements(%(kinds)s::jsonb) AS known (value)
        WHERE known.value ->> 0 = j.pool AND known.value ->> 1 = j.kind
      )
      AND NOT EXISTS (
        SELECT 1
        FROM jobpool.pauses AS p
        WHERE (
            (p.what = 'kind' AND p.name = j.kind)
            OR (p.what = 'pool' AND p.name = j.pool)
          )
          AND (p.until_ms IS NULL OR p.until_ms > %(now_ms)s)
      )
  ),
  count(*) FILTER (WHERE j.state || '' = 'leased')
FROM jobpool.suspects AS s
JOIN jobpool.jobs AS j ON j.id = s.job_id

-- name: suspects_in_lanes
-- :kinds holds [pool, kind] of laned kinds. Runnable suspects, with what they count by.
SELECT j.id, j.pool, j.kind, j.priority, j.tenant, j.quota_values, j.lane
FROM jobpool.suspects AS s
JOIN jobpool.jobs AS j ON j.id = s.job_id
WHERE j.state || '' = 'runnable'
  AND EXISTS (
    SELECT 1
    FROM jsonb_array_elements(%(kinds)s::jsonb) AS known (value)
    WHERE known.value ->> 0 = j.pool AND known.value ->> 1 = j.kind
  )
ORDER BY j.priority DESC, j.run_at_ms, j.id
LIMIT %(limit)s

-- name: has_probation_beside
-- Whether another run on this run's host has a suspect on probation: it has begun or is
-- about to. A suspect that waits for memory does not count.
SELECT EXISTS (
  SELECT 1
  FROM jobpool.suspects AS s
  JOIN jobpool.jobs AS j ON j.id = s.job_id
  JOIN jobpool.runs AS holder ON holder.id = j.supervisor
  JOIN jobpool.runs AS own ON own.id = %(run_id)s
  WHERE j.state || '' = 'leased'
    AND holder.id <> own.id AND holder.boot_id = own.boot_id
    AND coalesce(
      j.started_at_ms + %(longest_ms)s::numeric,
      j.leased_at_ms + %(begins_ms)s::numeric
    ) > %(now_ms)s::bigint
)

-- name: suspect_candidate
-- :kinds holds [pool, kind]. The next suspect but for :held ones: the one whose lost
-- attempt began last.
SELECT
  j.id, j.kind, j.pool, j.attempt, j.payload, j.checkpoint,
  j.max_attempts, j.timeout_s, j.memory_bytes,
  j.failures, j.crashes, j.interruptions, j.recoveries, j.throttled,
  j.reset_attempt, j.expires_at_ms, j.token, j.leased_at_ms,
  j.snoozes, j.snoozed_since_ms,
  j.priority, j.key, j.tenant, j.codec, j.tick, j.run_at_ms, j.step,
  j.trace
FROM jobpool.suspects AS s
JOIN jobpool.jobs AS j ON j.id = s.job_id
WHERE j.state || '' = 'runnable'
  AND j.id <> ALL (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(held)s::jsonb))
  )
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool.misfits AS m
    JOIN jobpool.kinds AS own
      ON own.kind = j.kind AND own.schema_digest = m.schema_digest
    WHERE m.job_id = j.id AND own.run_id = %(run_id)s::text
      AND m.until_ms > %(now_ms)s
  )
  AND EXISTS (
    SELECT 1
    FROM jsonb_array_elements(%(kinds)s::jsonb) AS known (value)
    WHERE known.value ->> 0 = j.pool AND known.value ->> 1 = j.kind
  )
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool.pauses AS q
    WHERE (
        (q.what = 'kind' AND q.name = j.kind)
        OR (q.what = 'pool' AND q.name = j.pool)
      )
      AND (q.until_ms IS NULL OR q.until_ms > %(now_ms)s)
  )
ORDER BY
  (
    SELECT max(a.token)
    FROM jobpool.attempts AS a
    WHERE a.job_id = j.id AND a.outcome = 'lost'
  ) DESC NULLS LAST,
  j.priority DESC, j.run_at_ms, j.id
LIMIT 1
FOR UPDATE OF j SKIP LOCKED

-- name: prune_suspects
-- Of jobs that were deleted, or ended without an attempt.
DELETE FROM jobpool.suspects AS s
WHERE NOT EXISTS (
  SELECT 1
  FROM jobpool.jobs AS j
  WHERE j.id = s.job_id AND j.state || '' IN ('pending', 'waiting', 'runnable', 'leased')
)

-- name: prune_misfits
-- Of jobs that were deleted or have ended.
DELETE FROM jobpool.misfits AS m
WHERE NOT EXISTS (
  SELECT 1
  FROM jobpool.jobs AS j
  WHERE j.id = m.job_id AND j.state || '' IN ('pending', 'waiting', 'runnable', 'leased')
)

-- name: prune_running
-- Leftovers of leases that have ended.
DELETE FROM jobpool.running AS n
WHERE NOT EXISTS (
  SELECT 1
  FROM jobpool.jobs AS j
  WHERE j.id = n.job_id AND j.token = n.token AND j.state || '' = 'leased'
)

-- name: save_breaker
-- The newest row replaces the former one.
INSERT INTO jobpool.breakers (
  kind, state, crashes, last_job, next_at_ms, changed_at_ms
)
VALUES (
  %(kind)s, %(state)s, %(crashes)s, %(last_job)s,
  %(now_ms)s::bigint + %(wait_ms)s::bigint, %(now_ms)s
)
ON CONFLICT (kind) DO UPDATE
SET
  state = excluded.state,
  crashes = excluded.crashes,
  last_job = excluded.last_job,
  next_at_ms = excluded.next_at_ms,
  changed_at_ms = excluded.changed_at_ms

-- name: drop_breaker
-- The kind works again.
DELETE FROM jobpool.breakers WHERE kind = %(kind)s
