-- Debouncing: jobs that share a unique text (`store.operations.producers.debounce`). These also run
-- on a caller's own connection, as those of enqueue.sql do.

-- name: text_holders
-- :rows holds [kind, unique text]. For each: its place, the unfinished job that has the
-- text, its state, whether that job may be changed since nothing of it has run, and the
-- job that waits for the text.
SELECT
  CAST(wanted.key AS INTEGER),
  +h.id,
  CAST(h.state AS BLOB),
  +h.state <> 'leased' AND h.attempt = 0 AND h.snoozes = 0 AND h.key IS NULL,
  +w.id
FROM json_each(:rows) AS wanted
LEFT JOIN jobpool_jobs AS h
  ON h.kind = json_extract(wanted.value, '$[0]')
  AND h.unique_text = json_extract(wanted.value, '$[1]')
  AND h.unique_text IS NOT NULL AND h.finished_at_ms IS NULL
LEFT JOIN jobpool_debounced AS d
  ON d.waits = 1
  AND d.kind = json_extract(wanted.value, '$[0]')
  AND d.unique_text = json_extract(wanted.value, '$[1]')
LEFT JOIN jobpool_jobs AS w ON w.id = d.job_id AND +w.state = 'waiting'

-- name: hold_open
-- Of :ids, the jobs that nothing has run of, and their states.
SELECT +id, CAST(state AS BLOB)
FROM jobpool_jobs
WHERE id IN (SELECT value FROM json_each(:ids))
  AND +state IN ('pending', 'waiting', 'runnable')
  AND attempt = 0 AND snoozes = 0

-- name: revise_jobs
-- :rows holds [id, pool, priority, tenant, attempts, timeout, memory, when it is due or
-- null: as before, how much later than its creation at most, when it expires, codec,
-- lane, quota values, trace]. Returns the jobs that nothing has run of, and their states: the
-- others are left as they are.
UPDATE jobpool_jobs
SET
  pool = new.pool,
  priority = new.priority,
  tenant = new.tenant,
  max_attempts = new.max_attempts,
  timeout_s = new.timeout_s,
  memory_bytes = new.memory_bytes,
  run_at_ms = coalesce(min(new.due_ms, created_at_ms + new.later_ms), run_at_ms),
  expires_at_ms = new.expires_at_ms,
  codec = new.codec,
  lane = new.lane,
  quota_values = new.quota_values,
  trace = new.trace,
  reason = NULL,
  state = iif(new.due_ms IS NULL OR state = 'waiting', state, 'pending')
FROM (
  SELECT
    json_extract(value, '$[0]') AS id,
    json_extract(value, '$[1]') AS pool,
    json_extract(value, '$[2]') AS priority,
    json_extract(value, '$[3]') AS tenant,
    json_extract(value, '$[4]') AS max_attempts,
    json_extract(value, '$[5]') AS timeout_s,
    json_extract(value, '$[6]') AS memory_bytes,
    json_extract(value, '$[7]') AS due_ms,
    json_extract(value, '$[8]') AS later_ms,
    json_extract(value, '$[9]') AS expires_at_ms,
    json_extract(value, '$[10]') AS codec,
    json_extract(value, '$[11]') AS lane,
    json_extract(value, '$[12]') AS quota_values,
    json_extract(value, '$[13]') AS trace
  FROM json_each(:rows)
) AS new
WHERE jobpool_jobs.id = new.id
  AND +jobpool_jobs.state IN ('pending', 'waiting', 'runnable')
  AND attempt = 0 AND snoozes = 0 AND key IS NULL
RETURNING +id, CAST(state AS BLOB)

-- name: begin_waiting
-- New jobs, before anybody sees them.
UPDATE jobpool_jobs
SET state = 'waiting'
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: note_debounced
-- :rows holds [id, kind, unique text, until it starts, waits, replacements,
-- postponements]; the last two are added. Whether it waits is said of a new job.
INSERT INTO jobpool_debounced (
  job_id, kind, unique_text, until_start, waits, replacements, postponements
)
SELECT
  json_extract(value, '$[0]'),
  json_extract(value, '$[1]'),
  json_extract(value, '$[2]'),
  json_extract(value, '$[3]'),
  json_extract(value, '$[4]'),
  json_extract(value, '$[5]'),
  json_extract(value, '$[6]')
FROM json_each(:rows)
WHERE true
ON CONFLICT (job_id) DO UPDATE
SET
  until_start = excluded.until_start,
  replacements = min(replacements + excluded.replacements, 2147483647),
  postponements = min(postponements + excluded.postponements, 2147483647)

-- name: clear_waits
-- :rows holds [kind, unique text]: what waited there is gone, or waits no more.
UPDATE jobpool_debounced
SET waits = 0
WHERE waits = 1
  AND (kind, unique_text) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:rows)
  )
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_jobs AS j
    WHERE j.id = jobpool_debounced.job_id AND +j.state = 'waiting'
  )

-- name: pass_texts_on
-- :rows holds [kind, unique text] that nobody has any more, but for those who wait.
UPDATE jobpool_jobs
SET
  state = 'pending',
  unique_text = (
    SELECT d.unique_text FROM jobpool_debounced AS d WHERE d.job_id = jobpool_jobs.id
  )
WHERE state = 'waiting'
  AND id IN (
    SELECT d.job_id
    FROM json_each(:rows) AS free
    CROSS JOIN jobpool_debounced AS d
      ON d.waits = 1
      AND d.kind = json_extract(free.value, '$[0]')
      AND d.unique_text = json_extract(free.value, '$[1]')
    WHERE NOT EXISTS (
        SELECT 1
        FROM jobpool_jobs AS h
        WHERE h.kind = d.kind AND h.unique_text = d.unique_text
          AND h.unique_text IS NOT NULL AND h.finished_at_ms IS NULL
      )
  )

-- name: waiting_texts
-- Of jobs after an id that wait for a text, some: id, kind, text, and whether they need
-- not wait.
SELECT
  d.job_id,
  d.kind,
  d.unique_text,
  NOT EXISTS (
    SELECT 1
    FROM jobpool_jobs AS h
    WHERE h.kind = d.kind AND h.unique_text = d.unique_text
      AND h.unique_text IS NOT NULL AND h.finished_at_ms IS NULL
  )
  OR NOT EXISTS (
    SELECT 1 FROM jobpool_jobs AS j WHERE j.id = d.job_id AND +j.state = 'waiting'
  )
FROM jobpool_debounced AS d
WHERE d.waits = 1 AND d.job_id > :after_id
ORDER BY d.job_id
LIMIT :limit

-- name: keep_texts
-- Of canceled jobs, the texts that they have waited for: they may be revived.
UPDATE jobpool_jobs
SET
  unique_text = (
    SELECT d.unique_text FROM jobpool_debounced AS d WHERE d.job_id = jobpool_jobs.id
  )
WHERE id IN (
    SELECT d.job_id
    FROM json_each(:ids) AS meant
    CROSS JOIN jobpool_debounced AS d ON d.job_id = meant.value AND d.waits = 1
  )
  AND +state = 'canceled' AND unique_text IS NULL

-- name: end_waits
-- Of canceled jobs.
UPDATE jobpool_debounced
SET waits = 0
WHERE waits = 1
  AND job_id IN (SELECT value FROM json_each(:ids))
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_jobs AS j
    WHERE j.id = jobpool_debounced.job_id AND +j.state = 'waiting'
  )

-- name: delete_debounced
-- Of pruned or erased jobs.
DELETE FROM jobpool_debounced WHERE job_id IN (SELECT value FROM json_each(:ids))
