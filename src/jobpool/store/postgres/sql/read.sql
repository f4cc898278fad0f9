-- Reads and operators' changes. A filter's absent conditions are NULL.

-- name: get_job
-- One job. What is not in the view: older code reads that by place.
SELECT
  r.*, j.replays, j.replaced_by, j.codec, j.throttled,
  d.until_start, d.replacements, d.postponements, d.follows,
  (
    SELECT w.job_id
    FROM jobpool.debounced AS w
    WHERE w.waits AND w.kind = j.kind AND w.unique_text = j.unique_text
      AND j.finished_at_ms IS NULL
  ),
  d.shared_text
FROM jobpool.job_records AS r
JOIN jobpool.jobs AS j ON j.id = r.id
LEFT JOIN jobpool.debounced_records AS d ON d.job_id = r.id
WHERE r.id = %(id)s

-- name: get_payload
-- Its arguments.
SELECT payload FROM jobpool.jobs WHERE id = %(id)s

-- name: get_trace
-- In which trace context it was enqueued.
SELECT trace FROM jobpool.jobs WHERE id = %(id)s

-- name: get_attempts
-- Its unsuccessful attempts, oldest first.
SELECT
  attempt, token, outcome, reason, error_class, error, traceback,
  signal, exit_code, peak_rss_bytes, cpu_s, duration_s, output, stack,
  supervisor, slot, started_at_ms, finished_at_ms, rule, app_version, memory_trail
FROM jobpool.attempts
WHERE job_id = %(id)s
ORDER BY id

-- name: get_kept_output
-- What its successful attempt has written.
SELECT attempt, at_ms, output, dropped_at_ms
FROM jobpool.outputs
WHERE job_id = %(id)s

-- name: get_output
-- The output of its running attempt so far, if it runs.
SELECT n.output
FROM jobpool.jobs AS j
JOIN jobpool.running AS n ON n.job_id = j.id AND n.token = j.token
WHERE j.id = %(id)s

-- name: find_jobs
-- Newest first. The range of ids keeps a search for a few ids from scanning the table.
SELECT
  r.*,
  (SELECT j.replays FROM jobpool.jobs AS j WHERE j.id = r.id),
  (SELECT j.replaced_by FROM jobpool.jobs AS j WHERE j.id = r.id),
  (SELECT j.codec FROM jobpool.jobs AS j WHERE j.id = r.id),
  (SELECT j.throttled FROM jobpool.jobs AS j WHERE j.id = r.id),
  d.until_start, d.replacements, d.postponements, d.follows,
  (
    SELECT w.job_id
    FROM jobpool.debounced AS w
    WHERE w.waits AND w.kind = r.kind AND w.unique_text = r.unique_text
      AND r.finished_at_ms IS NULL
  ),
  d.shared_text
FROM jobpool.job_records AS r
LEFT JOIN jobpool.debounced_records AS d ON d.job_id = r.id
WHERE id BETWEEN %(first_id)s AND %(last_id)s
  AND (
    %(ids)s::jsonb IS NULL
    OR id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND (
    %(states)s::jsonb IS NULL
    OR state IN (SELECT value FROM jsonb_array_elements_text(%(states)s::jsonb))
  )
  AND (%(kind)s::text IS NULL OR kind = %(kind)s::text)
  AND (%(pool)s::text IS NULL OR pool = %(pool)s::text)
  AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text)
  AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s::text)
  AND (
    %(error_class)s::text IS NULL
    OR error_class = %(error_class)s::text
    OR right(error_class, length(%(error_class)s::text) + 1)
    = '.' || %(error_class)s::text
  )
  AND (
    %(since_ms)s::bigint IS NULL
    OR coalesce(finished_at_ms, created_at_ms) >= %(since_ms)s::bigint
  )
  AND (
    %(text)s::text IS NULL
    OR strpos(key, %(text)s::text) > 0
    OR strpos(tenant, %(text)s::text) > 0
    OR strpos(reason, %(text)s::text) > 0
  )
ORDER BY id DESC
LIMIT %(limit)s

-- name: leased_jobs
-- As find_jobs; by the index of leased ones. Those that run for longest come first.
SELECT
  r.*,
  (SELECT j.replays FROM jobpool.jobs AS j WHERE j.id = r.id),
  (SELECT j.replaced_by FROM jobpool.jobs AS j WHERE j.id = r.id),
  (SELECT j.codec FROM jobpool.jobs AS j WHERE j.id = r.id),
  (SELECT j.throttled FROM jobpool.jobs AS j WHERE j.id = r.id),
  d.until_start, d.replacements, d.postponements, d.follows,
  (
    SELECT w.job_id
    FROM jobpool.debounced AS w
    WHERE w.waits AND w.kind = r.kind AND w.unique_text = r.unique_text
  ),
  d.shared_text
FROM jobpool.job_records AS r
LEFT JOIN jobpool.debounced_records AS d ON d.job_id = r.id
WHERE r.state = 'leased'
ORDER BY r.started_at_ms IS NULL, r.started_at_ms, r.id
LIMIT %(limit)s

-- name: last_ends
-- Attempts that did not succeed, column by column as in
-- jobpool.store.records.reading.EndRow. Each job is looked for alone, as in key_holders.
SELECT
  j.id, j.kind, j.pool, j.state, j.attempt,
  a.attempt, a.outcome, a.reason, a.error_class, a.finished_at_ms, a.duration_s,
  a.peak_rss_bytes
FROM (SELECT * FROM jobpool.attempts ORDER BY id DESC LIMIT %(limit)s) AS a
CROSS JOIN LATERAL (SELECT * FROM jobpool.jobs WHERE id = a.job_id LIMIT 1) AS j
ORDER BY a.id DESC

-- name: ended_by_minute
-- In each minute: jobs that have succeeded, and attempts that have not. Of the latter
-- only so many are looked at: no index has their times.
SELECT minute, sum(succeeded), sum(failed)
FROM (
  SELECT finished_at_ms / 60000 AS minute, count(*) AS succeeded, 0 AS failed
  FROM jobpool.jobs
  WHERE state = 'succeeded' AND finished_at_ms >= %(since_ms)s
  GROUP BY finished_at_ms / 60000
  UNION ALL
  SELECT finished_at_ms / 60000, 0, count(*)
  FROM (SELECT finished_at_ms FROM jobpool.attempts ORDER BY id DESC LIMIT %(failed_max)s) AS a
  WHERE finished_at_ms >= %(since_ms)s
  GROUP BY finished_at_ms / 60000
) AS ended
GROUP BY minute
ORDER BY minute

-- name: count_jobs
-- As find_jobs.
SELECT count(*)
FROM jobpool.jobs
WHERE id BETWEEN %(first_id)s AND %(last_id)s
  AND (
    %(ids)s::jsonb IS NULL
    OR id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND (
    %(states)s::jsonb IS NULL
    OR state IN (SELECT value FROM jsonb_array_elements_text(%(states)s::jsonb))
  )
  AND (%(kind)s::text IS NULL OR kind = %(kind)s::text)
  AND (%(pool)s::text IS NULL OR pool = %(pool)s::text)
  AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text)
  AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s::text)
  AND (
    %(error_class)s::text IS NULL
    OR error_class = %(error_class)s::text
    OR right(error_class, length(%(error_class)s::text) + 1)
    = '.' || %(error_class)s::text
  )
  AND (
    %(since_ms)s::bigint IS NULL
    OR coalesce(finished_at_ms, created_at_ms) >= %(since_ms)s::bigint
  )
  AND (
    %(text)s::text IS NULL
    OR strpos(key, %(text)s::text) > 0
    OR strpos(tenant, %(text)s::text) > 0
    OR strpos(reason, %(text)s::text) > 0
  )

-- name: group_jobs
-- As find_jobs, most first.
SELECT kind, state, reason, outcome, error_class, count(*) AS jobs
FROM jobpool.jobs
WHERE id BETWEEN %(first_id)s AND %(last_id)s
  AND (
    %(ids)s::jsonb IS NULL
    OR id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND (
    %(states)s::jsonb IS NULL
    OR state IN (SELECT value FROM jsonb_array_elements_text(%(states)s::jsonb))
  )
  AND (%(kind)s::text IS NULL OR kind = %(kind)s::text)
  AND (%(pool)s::text IS NULL OR pool = %(pool)s::text)
  AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text)
  AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s::text)
  AND (
    %(error_class)s::text IS NULL
    OR error_class = %(error_class)s::text
    OR right(error_class, length(%(error_class)s::text) + 1)
    = '.' || %(error_class)s::text
  )
  AND (
    %(since_ms)s::bigint IS NULL
    OR coalesce(finished_at_ms, created_at_ms) >= %(since_ms)s::bigint
  )
  AND (
    %(text)s::text IS NULL
    OR strpos(key, %(text)s::text) > 0
    OR strpos(tenant, %(text)s::text) > 0
    OR strpos(reason, %(text)s::text) > 0
  )
GROUP BY kind, state, reason, outcome, error_class
ORDER BY
  jobs DESC,
  kind,
  state,
  reason COLLATE "C" NULLS FIRST,
  outcome NULLS FIRST,
  error_class COLLATE "C" NULLS FIRST

-- name: get_stats
-- The view, in order.
SELECT pool, kind, state, jobs, mean_wait_s, mean_run_s
FROM jobpool.stats
ORDER BY pool, kind, state

-- name: get_figures
-- The view, in order.
SELECT
  kind, pool, attempts, rss_p50_bytes, rss_p99_bytes, rss_max_bytes, memory_bytes,
  duration_p50_s, duration_p99_s, duration_max_s, timeout_s
FROM jobpool.figures
ORDER BY kind, pool

-- name: get_sketches
-- Oldest week first.
SELECT week, kind, pool, measure, bucket, attempts, censored
FROM jobpool.sketches
WHERE %(kind)s::text IS NULL OR kind = %(kind)s::text
ORDER BY week, kind, pool, measure, bucket

-- name: get_scaling
-- The view, in order.
SELECT pool, running, due, slots, wanted_replicas FROM jobpool.scaling ORDER BY pool

-- name: get_depths
-- One state at a time: each has an index of its own, and none reads what has succeeded.
SELECT
  kind, pool, state,
  CASE WHEN priority < 0 THEN 'low' WHEN priority > 0 THEN 'high' ELSE 'normal' END
    AS band,
  count(*)
FROM (
  SELECT
    kind, pool,
    CASE WHEN run_at_ms <= %(now_ms)s THEN 'runnable' ELSE state END AS state, priority
  FROM jobpool.jobs
  WHERE state = 'pending'
  UNION ALL
  SELECT kind, pool, state, priority FROM jobpool.jobs WHERE state = 'runnable'
  UNION ALL
  SELECT kind, pool, state, priority FROM jobpool.jobs WHERE state = 'waiting'
  UNION ALL
  SELECT kind, pool, state, priority FROM jobpool.jobs WHERE state = 'leased'
  UNION ALL
  SELECT kind, pool, state, priority FROM jobpool.jobs WHERE state = 'dead'
  UNION ALL
  SELECT kind, pool, state, priority FROM jobpool.jobs WHERE state = 'quarantined'
) AS counted
GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4

-- name: get_tenant_depths
-- The tenants with the most unfinished jobs; likewise.
SELECT tenant, state, count(*) AS jobs
FROM (
  SELECT tenant, state FROM jobpool.jobs WHERE state = 'pending' AND tenant IS NOT NULL
  UNION ALL
  SELECT tenant, state FROM jobpool.jobs WHERE state = 'runnable' AND tenant IS NOT NULL
  UNION ALL
  SELECT tenant, state FROM jobpool.jobs WHERE state = 'waiting' AND tenant IS NOT NULL
  UNION ALL
  SELECT tenant, state FROM jobpool.jobs WHERE state = 'leased' AND tenant IS NOT NULL
) AS counted
GROUP BY 1, 2
ORDER BY 3 DESC, 1, 2
LIMIT %(limit)s

-- name: count_open_flows
-- By the index of those that have not ended.
SELECT state, count(*) FROM jobpool.flows WHERE finished_at_ms IS NULL GROUP BY state

-- name: get_samples
-- The newest successes, with the size of their arguments.
SELECT kind, pool, peak_rss_bytes, duration_s, octet_length(payload)
FROM (
  SELECT
    id, kind, pool, peak_rss_bytes, duration_s, payload,
    row_number() OVER (PARTITION BY kind, pool ORDER BY id DESC) AS place
  FROM (SELECT * FROM jobpool.jobs ORDER BY id DESC LIMIT 100000) AS j
  WHERE state = 'succeeded' AND peak_rss_bytes > 0 AND duration_s IS NOT NULL
) AS newest
WHERE place <= 1000
ORDER BY kind, pool, id

-- name: get_kinds
-- The view, in order. If any supervisor's jobs run at most once, it says so.
SELECT
  kind, pool, schema, timeout_s, memory_bytes, max_attempts, max_crashes,
  updated_at_ms,
  (
    SELECT max(k.at_most_once) FROM jobpool.kinds AS k WHERE k.kind = newest.kind
  ),
  (
    SELECT k.needs
    FROM jobpool.kinds AS k
    WHERE k.kind = newest.kind
    ORDER BY k.updated_at_ms DESC, k.run_id
    LIMIT 1
  )
FROM jobpool.newest_kinds AS newest
ORDER BY kind

-- name: wait_for_flows_of
-- Of jobs: whoever folds them has ended.
SELECT f.id
FROM jobpool.flows AS f
WHERE f.id IN (
  SELECT s.flow
  FROM jsonb_array_elements_text(%(ids)s::jsonb) AS wanted
  CROSS JOIN LATERAL (
    SELECT j.step FROM jobpool.jobs AS j WHERE j.id = wanted.value::bigint OFFSET 0
  ) AS found
  JOIN jobpool.steps AS s ON s.id = found.step
)
ORDER BY f.id
FOR UPDATE

-- name: lock_jobs
-- Locked in one order, so that operators never deadlock; the next statements decide on
-- rows that no longer change.
SELECT id
FROM jobpool.jobs
WHERE id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
)
ORDER BY id
FOR UPDATE

-- name: cancel_waiting
-- They do not run: they end here.
UPDATE jobpool.jobs
SET
  state = 'canceled',
  finished_at_ms = %(now_ms)s,
  reason = coalesce(reason, 'canceled on request')
WHERE id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  AND state IN ('pending', 'waiting', 'runnable', 'quarantined')

-- name: request_cancel
-- They run, or may: the run that holds the lease ends them.
UPDATE jobpool.jobs
SET cancel_requested = true
WHERE id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  AND state || '' = 'leased'

-- name: revive_jobs
-- A job whose unique text is held by another stays as it is. So does one that another
-- job has replaced, one whose arguments were erased, one of an external step, which
-- nobody can run, and one of a step that has ended: `retry_flow` begins that anew. Of a
-- step that has not ended it waits until a fold opens it; not by EXISTS, which may read
-- all such steps.
WITH wanted AS MATERIALIZED (
  SELECT
    j.id,
    j.kind,
    j.unique_text,
    j.finished_at_ms,
    (
      SELECT 1
      FROM jobpool.steps AS o
      WHERE o.id = j.step AND o.state IN ('closed', 'ready', 'skipping')
      LIMIT 1
    ) IS NOT NULL AS waits
  FROM jobpool.jobs AS j
  WHERE j.id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
    AND j.state IN (SELECT value FROM jsonb_array_elements_text(%(states)s::jsonb))
    AND j.state IN ('pending', 'dead', 'quarantined', 'canceled')
    AND j.replaced_by IS NULL
    AND j.payload <> ''
    AND NOT EXISTS (
      SELECT 1
      FROM jobpool.steps AS s
      WHERE s.id = j.step
        AND (s.is_external OR (s.hook IS NULL AND s.state IN ('done', 'skipped')))
    )
  ORDER BY j.id
  FOR UPDATE
),
ranked AS (
  SELECT
    *,
    row_number() OVER (PARTITION BY kind, unique_text ORDER BY id) AS place
  FROM wanted
)
UPDATE jobpool.jobs AS j
SET
  state = CASE WHEN ranked.waits THEN 'waiting' ELSE 'runnable' END,
  run_at_ms = CASE WHEN ranked.waits THEN j.created_at_ms ELSE %(now_ms)s END,
  finished_at_ms = NULL,
  expires_at_ms = NULL,
  failures = 0,
  crashes = 0,
  interruptions = 0,
  recoveries = 0,
  snoozes = 0,
  snoozed_since_ms = NULL,
  throttled = NULL,
  lane = abs(j.lane),
  reset_attempt = j.attempt,
  memory_bytes = coalesce(%(memory_bytes)s::bigint, j.memory_bytes)
FROM ranked
WHERE j.id = ranked.id
  AND (
    ranked.unique_text IS NULL
    OR ranked.finished_at_ms IS NULL
    OR (
      ranked.place = 1
      AND 0 = (
        SELECT count(*)
        FROM jobpool.jobs AS other
        WHERE other.kind = ranked.kind
          AND other.unique_text = ranked.unique_text
          AND other.finished_at_ms IS NULL
      )
    )
  )

-- name: note_waiting
-- Steps of jobs that wait are to be looked at.
INSERT INTO jobpool.flow_notes (step)
SELECT DISTINCT found.step
FROM jsonb_array_elements_text(%(ids)s::jsonb) AS wanted
CROSS JOIN LATERAL (
  SELECT w.step
  FROM jobpool.jobs AS w
  WHERE w.id = wanted.value::bigint AND w.state || '' = 'waiting'
  OFFSET 0
) AS found
WHERE found.step IS NOT NULL

-- name: pause
-- Nothing, if it is paused already, with the same end and no other note.
INSERT INTO jobpool.pauses AS p (what, name, since_ms, until_ms, who, note)
VALUES (
  %(what)s, %(name)s, %(now_ms)s, %(until_ms)s, %(who)s, %(note)s
)
ON CONFLICT (what, name) DO UPDATE
SET
  since_ms = excluded.since_ms,
  until_ms = excluded.until_ms,
  who = excluded.who,
  note = excluded.note
WHERE p.until_ms IS DISTINCT FROM excluded.until_ms
  OR (excluded.note IS NOT NULL AND p.note IS DISTINCT FROM excluded.note)

-- name: resume
-- Nothing, if it is not paused.
DELETE FROM jobpool.pauses
WHERE what = %(what)s AND name = %(name)s
  AND (until_ms IS NULL OR until_ms > %(now_ms)s)

-- name: pauses
-- Those that have not ended, in order, column by column as in
-- jobpool.store.records.operating.PauseRow.
SELECT what, name, since_ms, until_ms, who, note
FROM jobpool.pauses
WHERE until_ms IS NULL OR until_ms > %(now_ms)s
ORDER BY what, name

-- name: prune_pauses
-- They have ended, and count for nothing already.
DELETE FROM jobpool.pauses WHERE until_ms <= %(now_ms)s
