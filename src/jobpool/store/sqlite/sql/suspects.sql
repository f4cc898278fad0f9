-- Suspects, deaths of supervisors, and kinds that crash in a row.

-- name: note_leaving
-- Marks a run that drains or stops.
UPDATE jobpool_runs
SET leaving_at_ms = coalesce(leaving_at_ms, :now_ms)
WHERE id = :run_id AND ended_at_ms IS NULL

-- name: is_leaving
-- Whether a run is so marked.
SELECT leaving_at_ms IS NOT NULL FROM jobpool_runs WHERE id = :run_id

-- name: note_death
-- Recorded twice it is still one death, with the larger number of jobs.
UPDATE jobpool_runs
SET died_at_ms = :now_ms, died_with_jobs = max(coalesce(died_with_jobs, 0), :ran)
WHERE id = :run_id

-- name: other_deaths
-- Since a moment: those with jobs, and those without. Of a run that died with its host,
-- runs that died in the same boot are not other deaths.
SELECT
  coalesce(sum(died_with_jobs > 0), 0),
  coalesce(sum(died_with_jobs = 0), 0)
FROM jobpool_runs
WHERE died_at_ms >= :since_ms AND id <> :run_id
  AND NOT (
    :with_host = 1
    AND boot_id IN (
      SELECT dead.boot_id FROM jobpool_runs AS dead WHERE dead.id = :run_id
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
            FROM jobpool_jobs AS j
            WHERE j.state = 'leased' AND j.supervisor = dead.id
          ),
          0
        )
      THEN min(r.died_with_jobs, 2147483647)
      ELSE 0
    END
    + (
      SELECT count(*)
      FROM jobpool_jobs AS j
      WHERE j.state = 'leased' AND j.supervisor = r.id
    )
  ), 0)
FROM jobpool_runs AS dead
CROSS JOIN jobpool_runs AS r ON r.boot_id = dead.boot_id AND r.id <> dead.id
WHERE dead.id = :run_id
  AND r.id NOT IN (SELECT value FROM json_each(:living))
  AND (
    :with_host = 1
    OR 2 * r.heartbeat_at_ms <= dead.heartbeat_at_ms + dead.lease_until_ms
  )

-- name: suspect
-- :ids of jobs.
INSERT OR IGNORE INTO jobpool_suspects (job_id, since_ms)
SELECT value, :now_ms FROM json_each(:ids)

-- name: clear_jobs
-- :ids of jobs.
DELETE FROM jobpool_suspects WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: clear_leases
-- :rows holds [id, token] of suspects that have run long enough.
DELETE FROM jobpool_suspects
WHERE job_id IN (
  SELECT j.id
  FROM json_each(:rows) AS wanted
  CROSS JOIN jobpool_jobs AS j
  WHERE j.id = json_extract(wanted.value, '$[0]')
    AND j.token = json_extract(wanted.value, '$[1]')
    AND +j.state = 'leased'
)

-- name: suspects
-- Unfinished jobs that are suspects.
SELECT s.job_id, j.kind, j.pool, j.state, s.since_ms
FROM jobpool_suspects AS s
CROSS JOIN jobpool_jobs AS j ON j.id = s.job_id
WHERE +j.state IN ('pending', 'waiting', 'runnable', 'leased')
ORDER BY s.job_id

-- name: suspects_of
-- Suspects among the leases of a run.
SELECT s.job_id
FROM jobpool_suspects AS s
CROSS JOIN jobpool_jobs AS j ON j.id = s.job_id
WHERE +j.state = 'leased' AND j.supervisor = :run_id

-- name: suspects_due
-- :kinds holds [pool, kind]. Counts runnable suspects of these kinds, but for :held ones,
-- and leased ones.
SELECT
  coalesce(sum(
    +j.state = 'runnable' AND j.id NOT IN (SELECT value FROM json_each(:held))
    AND NOT EXISTS (
      SELECT 1
      FROM jobpool_misfits AS m
      CROSS JOIN jobpool_kinds AS own
        ON own.kind = j.kind AND own.run_id = :run_id
      WHERE m.job_id = j.id AND m.until_ms > :now_ms
        AND own.schema_digest = m.schema_digest
    )
    AND EXISTS (
      SELECT 1
      FROM json_each(:kinds) AS known
      WHERE json_extract(known.value, '$[0]') = j.pool
        AND json_extract(known.value, '$[1]') = j.kind
    )
    AND NOT EXISTS (
      SELECT 1
      FROM jobpool_pauses AS p
      WHERE (
          (p.what = 'kind' AND p.name = j.kind)
          OR (p.what = 'pool' AND p.name = j.pool)
        )
        AND (p.until_ms IS NULL OR p.until_ms > :now_ms)
    )
  ), 0),
  coalesce(sum(+j.state = 'leased'), 0)
FROM jobpool_suspects AS s
CROSS JOIN jobpool_jobs AS j ON j.id = s.job_id

-- name: suspects_in_lanes
-- :kinds holds [pool, kind] of laned kinds. Runnable suspects, with what they count by.
SELECT j.id, j.pool, j.kind, j.priority, j.tenant, j.quota_values, j.lane
FROM jobpool_suspects AS s
CROSS JOIN jobpool_jobs AS j ON j.id = s.job_id
WHERE +j.state = 'runnable'
  AND EXISTS (
    SELECT 1
    FROM json_each(:kinds) AS known
    WHERE json_extract(known.value, '$[0]') = j.pool
      AND json_extract(known.value, '$[1]') = j.kind
  )
ORDER BY j.priority DESC, j.run_at_ms, j.id
LIMIT :limit

-- name: has_probation_beside
-- Whether another run on this run's host has a suspect on probation: it has begun or is
-- about to. A suspect that waits for memory does not count.
SELECT EXISTS (
  SELECT 1
  FROM jobpool_suspects AS s
  CROSS JOIN jobpool_jobs AS j ON j.id = s.job_id
  CROSS JOIN jobpool_runs AS holder ON holder.id = j.supervisor
  CROSS JOIN jobpool_runs AS own ON own.id = :run_id
  WHERE +j.state = 'leased'
    AND holder.id <> own.id AND holder.boot_id = own.boot_id
    AND coalesce(j.started_at_ms + :longest_ms, j.leased_at_ms + :begins_ms) > :now_ms
)

-- name: suspect_candidate
-- :kinds holds [pool, kind]. The next suspect but for :held ones: the one whose lost
-- attempt began last.
SELECT
  j.id, j.kind, j.pool, j.attempt, p.payload, j.checkpoint,
  j.max_attempts, j.timeout_s, j.memory_bytes,
  j.failures, j.crashes, j.interruptions, j.recoveries, j.throttled,
  j.reset_attempt, j.expires_at_ms, j.token, j.leased_at_ms,
  j.snoozes, j.snoozed_since_ms,
  j.priority, j.key, j.tenant, j.codec, j.tick, j.run_at_ms, j.step,
  j.trace
FROM jobpool_suspects AS s
CROSS JOIN jobpool_jobs AS j ON j.id = s.job_id
LEFT JOIN jobpool_payloads AS p ON p.job_id = j.id
WHERE +j.state = 'runnable' AND j.id NOT IN (SELECT value FROM json_each(:held))
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_misfits AS m
    CROSS JOIN jobpool_kinds AS own
      ON own.kind = j.kind AND own.run_id = :run_id
    WHERE m.job_id = j.id AND m.until_ms > :now_ms
      AND own.schema_digest = m.schema_digest
  )
  AND EXISTS (
    SELECT 1
    FROM json_each(:kinds) AS known
    WHERE json_extract(known.value, '$[0]') = j.pool
      AND json_extract(known.value, '$[1]') = j.kind
  )
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_pauses AS q
    WHERE (
        (q.what = 'kind' AND q.name = j.kind)
        OR (q.what = 'pool' AND q.name = j.pool)
      )
      AND (q.until_ms IS NULL OR q.until_ms > :now_ms)
  )
ORDER BY
  (
    SELECT max(a.token)
    FROM jobpool_attempts AS a
    WHERE a.job_id = j.id AND a.outcome = 'lost'
  ) DESC,
  j.priority DESC, j.run_at_ms, j.id
LIMIT 1

-- name: prune_suspects
-- Of jobs that were deleted, or ended without an attempt.
DELETE FROM jobpool_suspects
WHERE job_id NOT IN (
  SELECT s.job_id
  FROM jobpool_suspects AS s
  CROSS JOIN jobpool_jobs AS j ON j.id = s.job_id
  WHERE +j.state IN ('pending', 'waiting', 'runnable', 'leased')
)

-- name: prune_misfits
-- Of jobs that were deleted or have ended.
DELETE FROM jobpool_misfits
WHERE job_id NOT IN (
  SELECT m.job_id
  FROM jobpool_misfits AS m
  CROSS JOIN jobpool_jobs AS j ON j.id = m.job_id
  WHERE +j.state IN ('pending', 'waiting', 'runnable', 'leased')
)

-- name: prune_running
-- Leftovers of leases that have ended.
DELETE FROM jobpool_running
WHERE job_id NOT IN (
  SELECT n.job_id
  FROM jobpool_running AS n
  CROSS JOIN jobpool_jobs AS j ON j.id = n.job_id
  WHERE +j.state = 'leased' AND j.token = n.token
)

-- name: save_breaker
-- The newest row replaces the former one.
INSERT OR REPLACE INTO jobpool_breakers (
  kind, state, crashes, last_job, next_at_ms, changed_at_ms
)
VALUES (:kind, :state, :crashes, :last_job, :now_ms + :wait_ms, :now_ms)

-- name: drop_breaker
-- The kind works again.
DELETE FROM jobpool_breakers WHERE kind = :kind
