-- Debouncing: jobs that share a unique text (`store.operations.producers.debounce`). These also run
-- on a caller's own connection, as those of enqueue.sql do.

-- name: lock_texts
-- :rows holds [kind, unique text]. Producers of the same text take turns, until each
-- one's commit: what one has stored the next one can change.
SELECT count(pg_advisory_xact_lock(text.number))
FROM (
  SELECT DISTINCT
    hashtextextended((value ->> 0) || ' ' || (value ->> 1), 1785684595) AS number
  FROM jsonb_array_elements(%(rows)s::jsonb)
  ORDER BY number
) AS text

-- name: text_holders
-- :rows holds [kind, unique text]. For each: its place, the unfinished job that has the
-- text, its state, whether that job may be changed since nothing of it has run, and the
-- job that waits for the text.
SELECT
  (wanted.place - 1)::integer,
  holder.id,
  convert_to(holder.state, 'UTF8'),
  holder.is_open,
  follower.id
FROM jsonb_array_elements(%(rows)s::jsonb)
  WITH ORDINALITY AS wanted (value, place)
LEFT JOIN LATERAL (
  SELECT
    h.id,
    h.state,
    h.state || '' <> 'leased' AND h.attempt = 0 AND h.snoozes = 0 AND h.key IS NULL
      AS is_open
  FROM jobpool.jobs AS h
  WHERE h.kind = wanted.value ->> 0
    AND h.unique_text = wanted.value ->> 1
    AND h.unique_text IS NOT NULL AND h.finished_at_ms IS NULL
  LIMIT 1
) AS holder ON true
LEFT JOIN LATERAL (
  SELECT w.id
  FROM jobpool.debounced AS d
  JOIN jobpool.jobs AS w ON w.id = d.job_id
  WHERE d.waits AND d.kind = wanted.value ->> 0 AND d.unique_text = wanted.value ->> 1
    AND w.state || '' = 'waiting'
  LIMIT 1
) AS follower ON true

-- name: hold_open
-- Of :ids, the jobs that nothing has run of, and their states. The locks keep them from
-- being leased until the commit.
SELECT id, convert_to(state, 'UTF8')
FROM jobpool.jobs
WHERE id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
)
  AND state || '' IN ('pending', 'waiting', 'runnable')
  AND attempt = 0 AND snoozes = 0
FOR SHARE

-- name: revise_jobs
-- :rows holds [id, pool, priority, tenant, attempts, timeout, memory, when it is due or
-- null: as before, how much later than its creation at most, when it expires, codec,
-- lane, quota values, trace, payload first, length]. Returns the jobs that nothing has run
-- of, and their states: the others are left as they are.
UPDATE jobpool.jobs AS j
SET
  pool = new.value ->> 1,
  priority = (new.value ->> 2)::integer,
  tenant = new.value ->> 3,
  max_attempts = (new.value ->> 4)::bigint,
  timeout_s = (new.value ->> 5)::double precision,
  memory_bytes = (new.value ->> 6)::bigint,
  run_at_ms = CASE
    WHEN new.value ->> 7 IS NULL THEN j.run_at_ms
    ELSE least(
      (new.value ->> 7)::bigint, j.created_at_ms + (new.value ->> 8)::bigint
    )
  END,
  expires_at_ms = (new.value ->> 9)::bigint,
  codec = new.value ->> 10,
  lane = (new.value ->> 11)::bigint,
  quota_values = new.value ->> 12,
  trace = new.value ->> 13,
  payload = substr(
    %(blobs)s::bytea, (new.value ->> 14)::integer, (new.value ->> 15)::integer
  ),
  reason = NULL,
  state = CASE
    WHEN new.value ->> 7 IS NULL OR j.state = 'waiting' THEN j.state
    ELSE 'pending'
  END
FROM jsonb_array_elements(%(rows)s::jsonb) AS new
WHERE j.id = (new.value ->> 0)::bigint
  AND j.id = ANY (
    ARRAY(SELECT (value ->> 0)::bigint FROM jsonb_array_elements(%(rows)s::jsonb))
  )
  AND j.state || '' IN ('pending', 'waiting', 'runnable')
  AND j.attempt = 0 AND j.snoozes = 0 AND j.key IS NULL
RETURNING j.id, convert_to(j.state, 'UTF8')

-- name: begin_waiting
-- New jobs, before anybody sees them.
UPDATE jobpool.jobs
SET state = 'waiting'
WHERE id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
)

-- name: note_debounced
-- :rows holds [id, kind, unique text, until it starts, waits, replacements,
-- postponements]; the last two are added. Whether it waits is said of a new job.
INSERT INTO jobpool.debounced AS d (
  job_id, kind, unique_text, until_start, waits, replacements, postponements
)
SELECT
  (value ->> 0)::bigint,
  value ->> 1,
  value ->> 2,
  (value ->> 3)::integer::boolean,
  (value ->> 4)::integer::boolean,
  (value ->> 5)::bigint,
  (value ->> 6)::bigint
FROM jsonb_array_elements(%(rows)s::jsonb)
ON CONFLICT (job_id) DO UPDATE
SET
  until_start = excluded.until_start,
  replacements = least(d.replacements + excluded.replacements, 2147483647),
  postponements = least(d.postponements + excluded.postponements, 2147483647)

-- name: clear_waits
-- :rows holds [kind, unique text]: what waited there is gone, or waits no more.
UPDATE jobpool.debounced AS d
SET waits = false
FROM jsonb_array_elements(%(rows)s::jsonb) AS meant
WHERE d.waits AND d.kind = meant.value ->> 0 AND d.unique_text = meant.value ->> 1
  AND NOT EXISTS (
    SELECT 1 FROM jobpool.jobs AS j WHERE j.id = d.job_id AND j.state || '' = 'waiting'
  )

-- name: pass_texts_on
-- :rows holds [kind, unique text] that nobody has any more, but for those who wait.
SELECT count(*) FILTER (WHERE jobpool.pass_text_on(value ->> 0, value ->> 1))
FROM jsonb_array_elements(%(rows)s::jsonb)

-- name: waiting_texts
-- Of jobs after an id that wait for a text, some: id, kind, text, and whether they need
-- not wait. Not by EXISTS: that may read all jobs, and remember who has a text.
SELECT
  d.job_id,
  d.kind,
  d.unique_text,
  (
    SELECT 1
    FROM jobpool.jobs AS h
    WHERE h.kind = d.kind AND h.unique_text = d.unique_text AND h.finished_at_ms IS NULL
    LIMIT 1
  ) IS NULL
  OR (
    SELECT 1 FROM jobpool.jobs AS j WHERE j.id = d.job_id AND j.state || '' = 'waiting'
  ) IS NULL
FROM jobpool.debounced AS d
WHERE d.waits AND d.job_id > %(after_id)s
ORDER BY d.job_id
LIMIT %(limit)s

-- name: keep_texts
-- Of canceled jobs, the texts that they have waited for: they may be revived.
UPDATE jobpool.jobs AS j
SET unique_text = d.unique_text
FROM jobpool.debounced AS d
WHERE d.job_id IN (
    SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb)
  )
  AND d.waits AND j.id = d.job_id
  AND j.state || '' = 'canceled' AND j.unique_text IS NULL

-- name: end_waits
-- Of canceled jobs.
UPDATE jobpool.debounced AS d
SET waits = false
WHERE d.waits
  AND d.job_id IN (
    SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb)
  )
  AND NOT EXISTS (
    SELECT 1 FROM jobpool.jobs AS j WHERE j.id = d.job_id AND j.state || '' = 'waiting'
  )

-- name: delete_debounced
-- Of pruned or erased jobs.
DELETE FROM jobpool.debounced
WHERE job_id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
