-- Enqueueing. These also run on a caller's own connection.

-- name: room_left
-- A lower bound, without counting: an index entry takes at least 6 bytes. Zero or less:
-- count.
SELECT %(limit)s::bigint - (
  pg_relation_size('jobpool.jobs_runnable')
  + pg_relation_size('jobpool.jobs_pending')
  + pg_relation_size('jobpool.jobs_waiting')
  + pg_relation_size('jobpool.jobs_leased')
) / 6

-- name: count_unfinished
-- Exact, up to the limit.
SELECT count(*)
FROM (
  SELECT 1 FROM jobpool.jobs WHERE state = 'runnable'
  UNION ALL
  SELECT 1 FROM jobpool.jobs WHERE state = 'pending'
  UNION ALL
  SELECT 1 FROM jobpool.jobs WHERE state = 'waiting'
  UNION ALL
  SELECT 1 FROM jobpool.jobs WHERE state = 'leased'
  LIMIT %(limit)s
) AS unfinished

-- name: key_holders
-- The jobs that hold these keys: place in :rows, id, state, payload, codec. Each is looked
-- for alone: joined with a table that was never analyzed, all of it would be read.
SELECT
  (wanted.place - 1)::integer,
  holder.id,
  convert_to(holder.state, 'UTF8'),
  holder.payload,
  convert_to(holder.codec, 'UTF8')
FROM jsonb_array_elements(%(rows)s::jsonb)
  WITH ORDINALITY AS wanted (value, place)
CROSS JOIN LATERAL (
  SELECT j.id, j.state, j.payload, j.codec
  FROM jobpool.jobs AS j
  WHERE j.kind = wanted.value ->> 0
    AND j.key = wanted.value ->> 1
    AND j.key IS NOT NULL
  LIMIT 1
) AS holder

-- name: unique_holders
-- The unfinished jobs that hold these unique texts: place in :rows, id, state.
SELECT (wanted.place - 1)::integer, holder.id, convert_to(holder.state, 'UTF8')
FROM jsonb_array_elements(%(rows)s::jsonb)
  WITH ORDINALITY AS wanted (value, place)
CROSS JOIN LATERAL (
  SELECT j.id, j.state
  FROM jobpool.jobs AS j
  WHERE j.kind = wanted.value ->> 0
    AND j.unique_text = wanted.value ->> 1
    AND j.unique_text IS NOT NULL AND j.finished_at_ms IS NULL
  LIMIT 1
) AS holder

-- name: has_format
-- Whether every supervisor that may lease honours a format.
SELECT EXISTS (
  SELECT 1 FROM jobpool.meta WHERE name = 'min_format' AND value >= %(format)s
)

-- name: count_older_runs
-- Open runs that do not know a format.
SELECT count(*)
FROM jobpool.runs
WHERE ended_at_ms IS NULL AND coalesce(format, 1) < %(format)s

-- name: insert_job
-- One job, the usual call: needs no query before it. Uses the transaction's own clock
-- unless :now_ms is given.
WITH moment AS MATERIALIZED (
  SELECT
    coalesce(
      %(now_ms)s::bigint, floor(extract(epoch FROM now()) * 1000)::bigint
    ) AS now_ms
),
due AS MATERIALIZED (
  SELECT
    now_ms,
    coalesce(
      %(run_at_ms)s::bigint, least(now_ms + %(delay_ms)s::bigint, 253402300799000)
    ) AS run_at_ms
  FROM moment
)
INSERT INTO jobpool.jobs (
  kind, pool, state, priority, key, unique_text, tenant,
  max_attempts, timeout_s, memory_bytes, run_at_ms, expires_at_ms,
  payload, codec, lane, quota_values, trace, created_at_ms
)
SELECT
  %(kind)s::text,
  %(pool)s::text,
  CASE WHEN run_at_ms <= now_ms THEN 'runnable' ELSE 'pending' END,
  %(priority)s::integer,
  %(key)s::text,
  %(unique_text)s::text,
  %(tenant)s::text,
  %(max_attempts)s::bigint,
  %(timeout_s)s::double precision,
  %(memory_bytes)s::bigint,
  run_at_ms,
  CASE
    WHEN %(expires_in_ms)s::bigint IS NOT NULL  -- of a NULL, least() would make the other
      THEN least(now_ms + %(expires_in_ms)s::bigint, 253402300799000)
  END,
  %(payload)s::bytea,
  %(codec)s::text,
  %(lane)s::bigint,
  %(quota_values)s::text,
  %(trace)s::text,
  now_ms
FROM due
ON CONFLICT DO NOTHING
RETURNING id, convert_to(state, 'UTF8')

-- name: insert_jobs
-- In order: ids increase. Jobs whose key or unique text another producer has just
-- stored are left out. Returns the ids in order of :rows, and those stored.
WITH fresh AS MATERIALIZED (
  SELECT nextval('jobpool.job_ids') AS id, ordered.place, ordered.value
  FROM (
    SELECT place, value
    FROM jsonb_array_elements(%(rows)s::jsonb)
      WITH ORDINALITY AS given (value, place)
    ORDER BY place
  ) AS ordered
),
stored AS (
  INSERT INTO jobpool.jobs (
    id, kind, pool, state, priority, key, unique_text, tenant,
    max_attempts, timeout_s, memory_bytes, created_at_ms, run_at_ms, expires_at_ms,
    codec, lane, quota_values, trace, payload
  )
  SELECT
    id,
    value ->> 0,
    value ->> 1,
    value ->> 2,
    (value ->> 3)::integer,
    value ->> 4,
    value ->> 5,
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
    substr(%(blobs)s::bytea, (value ->> 16)::integer, (value ->> 17)::integer)
  FROM fresh
  ORDER BY place
  ON CONFLICT DO NOTHING
  RETURNING id
)
SELECT
  (SELECT array_agg(id ORDER BY place) FROM fresh),
  (SELECT array_agg(id) FROM stored)
