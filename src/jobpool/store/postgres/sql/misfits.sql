-- Misfits: jobs whose arguments did not fit a supervisor's version of the handler.

-- name: fit_elsewhere
-- For a leased job: the digest of its supervisor's schema of the kind, since when the
-- job is a misfit, and whether an open run with another schema has yet to try it.
SELECT
  own.schema_digest,
  (SELECT min(m.since_ms) FROM jobpool.misfits AS m WHERE m.job_id = j.id),
  EXISTS (
    SELECT 1
    FROM jobpool.kinds AS other
    JOIN jobpool.runs AS r ON r.id = other.run_id
    WHERE other.kind = j.kind AND other.pool = j.pool AND r.ended_at_ms IS NULL
      AND r.lease_until_ms > %(now_ms)s
      AND r.id <> j.supervisor
      AND other.schema_digest IS DISTINCT FROM own.schema_digest
      AND NOT EXISTS (
        SELECT 1
        FROM jobpool.misfits AS tried
        WHERE tried.job_id = j.id AND tried.schema_digest = other.schema_digest
      )
  )
FROM jobpool.jobs AS j
LEFT JOIN jobpool.kinds AS own ON own.kind = j.kind AND own.run_id = j.supervisor
WHERE j.id = %(id)s

-- name: note_misfit
-- The newest row replaces the former one.
INSERT INTO jobpool.misfits (job_id, schema_digest, since_ms, until_ms)
VALUES (%(id)s, %(schema_digest)s, %(since_ms)s, %(until_ms)s)
ON CONFLICT (job_id, schema_digest) DO UPDATE
SET since_ms = excluded.since_ms, until_ms = excluded.until_ms

-- name: misfits_among
-- :ids of jobs.
SELECT job_id
FROM jobpool.misfits
WHERE job_id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))

-- name: forget_misfits
-- :ids of jobs that fit a supervisor, or that an operator wants to try again.
DELETE FROM jobpool.misfits
WHERE job_id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))

-- name: wake_misfits
-- A run with other schemas has begun: misfits that it has not tried are due. Jobs that
-- another transaction holds are skipped.
WITH waiting AS MATERIALIZED (
  SELECT j.id
  FROM jobpool.jobs AS j
  WHERE j.id IN (SELECT job_id FROM jobpool.misfits)
    AND j.state || '' = 'pending'
    AND EXISTS (
      SELECT 1
      FROM jobpool.kinds AS own
      WHERE own.kind = j.kind AND own.run_id = %(run_id)s
        AND NOT EXISTS (
          SELECT 1
          FROM jobpool.misfits AS tried
          WHERE tried.job_id = j.id AND tried.schema_digest = own.schema_digest
        )
    )
  FOR UPDATE OF j SKIP LOCKED
)
UPDATE jobpool.jobs
SET state = 'runnable', run_at_ms = %(now_ms)s
WHERE id IN (SELECT id FROM waiting)

-- name: misfits
-- How many unfinished jobs of each kind are misfits, and since when. Each is looked for
-- alone, as in key_holders.
SELECT j.pool, j.kind, count(DISTINCT j.id), min(m.since_ms)
FROM jobpool.misfits AS m
CROSS JOIN LATERAL (SELECT * FROM jobpool.jobs WHERE id = m.job_id LIMIT 1) AS j
WHERE j.state || '' IN ('pending', 'runnable')
GROUP BY j.pool, j.kind
ORDER BY j.pool, j.kind
