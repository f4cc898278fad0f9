-- Enqueueing. These also run on a caller's own connection, whose text_factory and
-- converters are unknown: results are expressions (no declared type) and texts are
-- cast to BLOB.

-- name: reserve_room
-- Raise the upper bound of unfinished jobs, if it stays within the limit.
UPDATE jobpool_meta
SET value = value + :jobs
WHERE name = 'unfinished_at_most' AND value + :jobs <= :limit

-- name: add_room
-- Raise the bound beyond the limit if necessary, up to 2^53: revived jobs and hooks
-- are never refused.
UPDATE jobpool_meta
SET value = min(CAST(value AS INTEGER) + :jobs, 9007199254740992)
WHERE name = 'unfinished_at_most'

-- name: count_unfinished
-- Exact, but scans four indexes: only used when the bound is reached.
SELECT
  (SELECT count(*) FROM jobpool_jobs WHERE state = 'runnable')
  + (SELECT count(*) FROM jobpool_jobs WHERE state = 'pending')
  + (SELECT count(*) FROM jobpool_jobs WHERE state = 'waiting')
  + (SELECT count(*) FROM jobpool_jobs WHERE state = 'leased')

-- name: set_room
-- Replace the bound by the count.
UPDATE jobpool_meta
SET value = :jobs
WHERE name = 'unfinished_at_most'

-- name: key_holders
-- The jobs that hold these keys: place in :rows, id, state, payload, codec.
SELECT
  CAST(wanted.key AS INTEGER),
  +j.id,
  CAST(j.state AS BLOB),
  CAST(p.payload AS BLOB),
  CAST(j.codec AS BLOB)
FROM json_each(:rows) AS wanted
CROSS JOIN jobpool_jobs AS j
  ON j.kind = json_extract(wanted.value, '$[0]')
  AND j.key = json_extract(wanted.value, '$[1]')
LEFT JOIN jobpool_payloads AS p ON p.job_id = j.id
WHERE j.key IS NOT NULL

-- name: unique_holders
-- The unfinished jobs that hold these unique texts: place in :rows, id, state.
SELECT CAST(wanted.key AS INTEGER), +j.id, CAST(j.state AS BLOB)
FROM json_each(:rows) AS wanted
CROSS JOIN jobpool_jobs AS j
  ON j.kind = json_extract(wanted.value, '$[0]')
  AND j.unique_text = json_extract(wanted.value, '$[1]')
WHERE j.unique_text IS NOT NULL AND j.finished_at_ms IS NULL

-- name: has_format
-- Whether every supervisor that may lease honours a format.
SELECT EXISTS (
  SELECT 1 FROM jobpool_meta WHERE name = 'min_format' AND value >= :format
)

-- name: count_older_runs
-- Open runs that do not know a format.
SELECT count(*)
FROM jobpool_runs
WHERE ended_at_ms IS NULL AND coalesce(format, 1) < :format

-- name: insert_jobs
-- In order: AUTOINCREMENT ids increase. The order of RETURNING is arbitrary.
INSERT INTO jobpool_jobs (
  kind, pool, state, priority, key, unique_text, tenant,
  max_attempts, timeout_s, memory_bytes, created_at_ms, run_at_ms, expires_at_ms,
  codec, lane, quota_values, trace
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
  json_extract(new.value, '$[15]')
FROM json_each(:rows) AS new
ORDER BY new.key
RETURNING +id

-- name: insert_alike
-- As insert_jobs, for :count jobs that only differ in their payloads: extracting
-- nineteen values per row costs more than storing it. No RETURNING, which costs another
-- quarter: the ids follow highest_id, up to last_id.
INSERT INTO jobpool_jobs (
  kind, pool, state, priority, key, unique_text, tenant,
  max_attempts, timeout_s, memory_bytes, created_at_ms, run_at_ms, expires_at_ms,
  codec, lane, quota_values, trace, step, generation, added_by
)
WITH RECURSIVE place (number) AS (
  SELECT 1
  UNION ALL
  SELECT number + 1 FROM place WHERE number < :count
)
SELECT
  :kind, :pool, :state, :priority, :key, :unique_text, :tenant,
  :max_attempts, :timeout_s, :memory_bytes, :now_ms, :run_at_ms, :expires_at_ms,
  :codec, :lane, :quota_values, :trace, :step, :generation, :added_by
FROM place

-- name: highest_id
-- Where AUTOINCREMENT continues. A caller's connection may also have a sequence for its
-- temporary tables.
SELECT max(
  coalesce((SELECT seq FROM main.sqlite_sequence WHERE name = 'jobpool_jobs'), 0),
  coalesce((SELECT max(id) FROM jobpool_jobs), 0)
)

-- name: last_id
-- Of the last row that a statement of this connection, not a trigger, has stored.
SELECT last_insert_rowid()

-- name: insert_payloads
-- :rows holds [id, first byte from 1, length] within :blobs: bytes stay exact. A row that
-- already exists was written by another program.
INSERT OR REPLACE INTO jobpool_payloads (job_id, payload)
SELECT
  json_extract(new.value, '$[0]'),
  substr(
    :blobs, json_extract(new.value, '$[1]'), json_extract(new.value, '$[2]')
  )
FROM json_each(:rows) AS new
