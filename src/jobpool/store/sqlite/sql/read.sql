-- Reads and operators' changes. A filter's absent conditions are NULL.

-- name: get_job
-- One job. What is not in the view: older code reads that by place.
SELECT
  r.*, j.replays, j.replaced_by, j.codec, j.throttled,
  d.until_start, d.replacements, d.postponements, d.follows,
  (
    SELECT w.job_id
    FROM jobpool_debounced AS w
    WHERE w.waits = 1 AND w.kind = j.kind AND w.unique_text = j.unique_text
      AND j.finished_at_ms IS NULL
  ),
  d.shared_text
FROM jobpool_job_records AS r
CROSS JOIN jobpool_jobs AS j ON j.id = r.id
LEFT JOIN jobpool_debounced_records AS d ON d.job_id = r.id
WHERE r.id = :id

-- name: get_payload
-- Its arguments.
SELECT payload FROM jobpool_payloads WHERE job_id = :id

-- name: get_trace
-- In which trace context it was enqueued.
SELECT trace FROM jobpool_jobs WHERE id = :id

-- name: get_attempts
-- Its unsuccessful attempts, oldest first.
SELECT
  attempt, token, outcome, reason, error_class, error, traceback,
  signal, exit_code, peak_rss_bytes, cpu_s, duration_s, output, stack,
  supervisor, slot, started_at_ms, finished_at_ms, rule, app_version, memory_trail
FROM jobpool_attempts
WHERE job_id = :id
ORDER BY id

-- name: get_kept_output
-- What its successful attempt has written.
SELECT attempt, at_ms, iif(typeof(output) = 'text', output, NULL), dropped_at_ms
FROM jobpool_outputs
WHERE job_id = :id

-- name: get_output
-- The output of its running attempt so far, if it runs.
SELECT iif(typeof(n.output) = 'text', n.output, NULL)
FROM jobpool_jobs AS j
CROSS JOIN jobpool_running AS n ON n.job_id = j.id AND n.token = j.token
WHERE j.id = :id

-- name: find_jobs
-- Newest first. The range of ids keeps a search for a few ids from scanning the table.
SELECT
  r.*,
  (SELECT j.replays FROM jobpool_jobs AS j WHERE j.id = r.id),
  (SELECT j.replaced_by FROM jobpool_jobs AS j WHERE j.id = r.id),
  (SELECT j.codec FROM jobpool_jobs AS j WHERE j.id = r.id),
  (SELECT j.throttled FROM jobpool_jobs AS j WHERE j.id = r.id),
  d.until_start, d.replacements, d.postponements, d.follows,
  (
    SELECT w.job_id
    FROM jobpool_debounced AS w
    WHERE w.waits = 1 AND w.kind = r.kind AND w.unique_text = r.unique_text
      AND r.finished_at_ms IS NULL
  ),
  d.shared_text
FROM jobpool_job_records AS r
LEFT JOIN jobpool_debounced_records AS d ON d.job_id = r.id
WHERE id BETWEEN :first_id AND :last_id
  AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:kind IS NULL OR kind = :kind)
  AND (:pool IS NULL OR pool = :pool)
  AND (:tenant IS NULL OR tenant = :tenant)
  AND (:outcome IS NULL OR outcome = :outcome)
  AND (
    :error_class IS NULL
    OR error_class = :error_class
    OR substr(error_class, -length(:error_class) - 1) = '.' || :error_class
  )
  AND (:since_ms IS NULL OR coalesce(finished_at_ms, created_at_ms) >= :since_ms)
  AND (
    :text IS NULL
    OR instr(key, :text) > 0 OR instr(tenant, :text) > 0 OR instr(reason, :text) > 0
  )
ORDER BY id DESC
LIMIT :limit

-- name: leased_jobs
-- As find_jobs; by the index of leased ones. Those that run for longest come first.
SELECT
  r.*,
  (SELECT j.replays FROM jobpool_jobs AS j WHERE j.id = r.id),
  (SELECT j.replaced_by FROM jobpool_jobs AS j WHERE j.id = r.id),
  (SELECT j.codec FROM jobpool_jobs AS j WHERE j.id = r.id),
  (SELECT j.throttled FROM jobpool_jobs AS j WHERE j.id = r.id),
  d.until_start, d.replacements, d.postponements, d.follows,
  (
    SELECT w.job_id
    FROM jobpool_debounced AS w
    WHERE w.waits = 1 AND w.kind = r.kind AND w.unique_text = r.unique_text
  ),
  d.shared_text
FROM jobpool_job_records AS r
LEFT JOIN jobpool_debounced_records AS d ON d.job_id = r.id
WHERE r.state = 'leased'
ORDER BY r.started_at_ms IS NULL, r.started_at_ms, r.id
LIMIT :limit

-- name: last_ends
-- Attempts that did not succeed, column by column as in
-- jobpool.store.records.reading.EndRow.
SELECT
  j.id, j.kind, j.pool, j.state, j.attempt,
  a.attempt, a.outcome, a.reason, a.error_class, a.finished_at_ms, a.duration_s,
  a.peak_rss_bytes
FROM (SELECT * FROM jobpool_attempts ORDER BY id DESC LIMIT :limit) AS a
CROSS JOIN jobpool_jobs AS j ON j.id = a.job_id
ORDER BY a.id DESC

-- name: ended_by_minute
-- In each minute: jobs that have succeeded, and attempts that have not. Of the latter
-- only so many are looked at: no index has their times.
SELECT minute, sum(succeeded), sum(failed)
FROM (
  SELECT finished_at_ms / 60000 AS minute, count(*) AS succeeded, 0 AS failed
  FROM jobpool_jobs
  WHERE state = 'succeeded' AND finished_at_ms >= :since_ms
  GROUP BY finished_at_ms / 60000
  UNION ALL
  SELECT finished_at_ms / 60000, 0, count(*)
  FROM (SELECT finished_at_ms FROM jobpool_attempts ORDER BY id DESC LIMIT :failed_max)
  WHERE finished_at_ms >= :since_ms
  GROUP BY finished_at_ms / 60000
)
GROUP BY minute
ORDER BY minute

-- name: count_jobs
-- As find_jobs.
SELECT count(*)
FROM jobpool_jobs
WHERE id BETWEEN :first_id AND :last_id
  AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:kind IS NULL OR kind = :kind)
  AND (:pool IS NULL OR pool = :pool)
  AND (:tenant IS NULL OR tenant = :tenant)
  AND (:outcome IS NULL OR outcome = :outcome)
  AND (
    :error_class IS NULL
    OR error_class = :error_class
    OR substr(error_class, -length(:error_class) - 1) = '.' || :error_class
  )
  AND (:since_ms IS NULL OR coalesce(finished_at_ms, created_at_ms) >= :since_ms)
  AND (
    :text IS NULL
    OR instr(key, :text) > 0 OR instr(tenant, :text) > 0 OR instr(reason, :text) > 0
  )

-- name: group_jobs
-- As find_jobs, most first.
SELECT kind, state, reason, outcome, error_class, count(*) AS jobs
FROM jobpool_jobs
WHERE id BETWEEN :first_id AND :last_id
  AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:kind IS NULL OR kind = :kind)
  AND (:pool IS NULL OR pool = :pool)
  AND (:tenant IS NULL OR tenant = :tenant)
  AND (:outcome IS NULL OR outcome = :outcome)
  AND (
    :error_class IS NULL
    OR error_class = :error_class
    OR substr(error_class, -length(:error_class) - 1) = '.' || :error_class
  )
  AND (:since_ms IS NULL OR coalesce(finished_at_ms, created_at_ms) >= :since_ms)
  AND (
    :text IS NULL
    OR instr(key, :text) > 0 OR instr(tenant, :text) > 0 OR instr(reason, :text) > 0
  )
GROUP BY kind, state, reason, outcome, error_class
ORDER BY jobs DESC, kind, state, reason, outcome, error_class

-- name: get_stats
-- The view, in order.
SELECT pool, kind, state, jobs, mean_wait_s, mean_run_s
FROM jobpool_stats
ORDER BY pool, kind, state

-- name: get_figures
-- The view, in order.
SELECT
  kind, pool, attempts, rss_p50_bytes, rss_p99_bytes, rss_max_bytes, memory_bytes,
  duration_p50_s, duration_p99_s, duration_max_s, timeout_s
FROM jobpool_figures
ORDER BY kind, pool

-- name: get_sketches
-- Oldest week first.
SELECT week, kind, pool, measure, bucket, attempts, censored
FROM jobpool_sketches
WHERE :kind IS NULL OR kind = :kind
ORDER BY week, kind, pool, measure, bucket

-- name: get_scaling
-- The view, in order.
SELECT pool, running, due, slots, wanted_replicas FROM jobpool_scaling ORDER BY pool

-- name: get_depths
-- One state at a time: each has an index of its own, and none reads what has succeeded.
SELECT
  kind, pool, state,
  CASE WHEN priority < 0 THEN 'low' WHEN priority > 0 THEN 'high' ELSE 'normal' END
    AS band,
  count(*)
FROM (
  SELECT kind, pool, iif(run_at_ms <= :now_ms, 'runnable', state) AS state, priority
  FROM jobpool_jobs
  WHERE state = 'pending'
  UNION ALL
  SELECT kind, pool, state, priority FROM jobpool_jobs WHERE state = 'runnable'
  UNION ALL
  SELECT kind, pool, state, priority FROM jobpool_jobs WHERE state = 'waiting'
  UNION ALL
  SELECT kind, pool, state, priority FROM jobpool_jobs WHERE state = 'leased'
  UNION ALL
  SELECT kind, pool, state, priority FROM jobpool_jobs WHERE state = 'dead'
  UNION ALL
  SELECT kind, pool, state, priority FROM jobpool_jobs WHERE state = 'quarantined'
) AS counted
GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4

-- name: get_tenant_depths
-- The tenants with the most unfinished jobs; likewise.
SELECT tenant, state, count(*) AS jobs
FROM (
  SELECT tenant, state FROM jobpool_jobs WHERE state = 'pending' AND tenant IS NOT NULL
  UNION ALL
  SELECT tenant, state FROM jobpool_jobs WHERE state = 'runnable' AND tenant IS NOT NULL
  UNION ALL
  SELECT tenant, state FROM jobpool_jobs WHERE state = 'waiting' AND tenant IS NOT NULL
  UNION ALL
  SELECT tenant, state FROM jobpool_jobs WHERE state = 'leased' AND tenant IS NOT NULL
) AS counted
GROUP BY 1, 2
ORDER BY 3 DESC, 1, 2
LIMIT :limit

-- name: count_open_flows
-- By the index of those that have not ended.
SELECT state, count(*) FROM jobpool_flows WHERE finished_at_ms IS NULL GROUP BY state

-- name: get_samples
-- The newest successes, with the size of their arguments.
SELECT kind, pool, peak_rss_bytes, duration_s, length(p.payload)
FROM (
  SELECT
    id, kind, pool, peak_rss_bytes, duration_s,
    row_number() OVER (PARTITION BY kind, pool ORDER BY id DESC) AS place
  FROM (SELECT * FROM jobpool_jobs ORDER BY id DESC LIMIT 100000)
  WHERE state = 'succeeded' AND peak_rss_bytes > 0 AND duration_s IS NOT NULL
) AS newest
JOIN jobpool_payloads AS p ON p.job_id = newest.id
WHERE place <= 1000
ORDER BY kind, pool, id

-- name: get_kinds
-- The view, in order. If any supervisor's jobs run at most once, it says so.
SELECT
  kind, pool, schema, timeout_s, memory_bytes, max_attempts, max_crashes,
  updated_at_ms,
  (
    SELECT max(k.at_most_once) FROM jobpool_kinds AS k WHERE k.kind = newest.kind
  ),
  (
    SELECT k.needs
    FROM jobpool_kinds AS k
    WHERE k.kind = newest.kind
    ORDER BY k.updated_at_ms DESC, k.run_id
    LIMIT 1
  )
FROM jobpool_newest_kinds AS newest
ORDER BY kind

-- name: cancel_waiting
-- They do not run: they end here.
UPDATE jobpool_jobs
SET
  state = 'canceled',
  finished_at_ms = :now_ms,
  reason = coalesce(reason, 'canceled on request')
WHERE id IN (SELECT value FROM json_each(:ids))
  AND +state IN ('pending', 'waiting', 'runnable', 'quarantined')

-- name: request_cancel
-- They run, or may: the run that holds the lease ends them.
UPDATE jobpool_jobs
SET cancel_requested = 1
WHERE id IN (SELECT value FROM json_each(:ids))
  AND +state = 'leased'

-- name: revive_jobs
-- OR IGNORE: a job whose unique text is held by another stays as it is. So does one that
-- another job has replaced, one whose arguments were erased, one of an external step,
-- which nobody can run, and one of a step that has ended: `retry_flow` begins that anew.
-- Of a step that has not ended it waits until a fold opens it.
UPDATE OR IGNORE jobpool_jobs
SET
  state = CASE
    WHEN EXISTS (
      SELECT 1
      FROM jobpool_steps AS o
      WHERE o.id = jobpool_jobs.step AND o.state IN ('closed', 'ready', 'skipping')
    ) THEN 'waiting'
    ELSE 'runnable'
  END,
  run_at_ms = CASE
    WHEN EXISTS (
      SELECT 1
      FROM jobpool_steps AS o
      WHERE o.id = jobpool_jobs.step AND o.state IN ('closed', 'ready', 'skipping')
    ) THEN created_at_ms
    ELSE :now_ms
  END,
  finished_at_ms = NULL,
  expires_at_ms = NULL,
  failures = 0,
  crashes = 0,
  interruptions = 0,
  recoveries = 0,
  snoozes = 0,
  snoozed_since_ms = NULL,
  throttled = NULL,
  lane = abs(lane),
  reset_attempt = attempt,
  memory_bytes = coalesce(:memory_bytes, memory_bytes)
WHERE id IN (SELECT value FROM json_each(:ids))
  AND +state IN (SELECT value FROM json_each(:states))
  AND +state IN ('pending', 'dead', 'quarantined', 'canceled')
  AND replaced_by IS NULL
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_payloads AS p
    WHERE p.job_id = jobpool_jobs.id AND p.payload = x''
  )
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_steps AS s
    WHERE s.id = jobpool_jobs.step
      AND (s.is_external OR (s.hook IS NULL AND s.state IN ('done', 'skipped')))
  )

-- name: note_waiting
-- Steps of jobs that wait are to be looked at.
INSERT OR IGNORE INTO jobpool_flow_notes (step)
SELECT w.step
FROM json_each(:ids) AS wanted
CROSS JOIN jobpool_jobs AS w ON w.id = wanted.value
WHERE w.step IS NOT NULL AND +w.state = 'waiting'

-- name: pause
-- Nothing, if it is paused already, with the same end and no other note.
INSERT INTO jobpool_pauses (what, name, since_ms, until_ms, who, note)
VALUES (:what, :name, :now_ms, :until_ms, :who, :note)
ON CONFLICT (what, name) DO UPDATE
SET
  since_ms = excluded.since_ms,
  until_ms = excluded.until_ms,
  who = excluded.who,
  note = excluded.note
WHERE jobpool_pauses.until_ms IS NOT excluded.until_ms
  OR (excluded.note IS NOT NULL AND jobpool_pauses.note IS NOT excluded.note)

-- name: resume
-- Nothing, if it is not paused.
DELETE FROM jobpool_pauses
WHERE what = :what AND name = :name AND (until_ms IS NULL OR until_ms > :now_ms)

-- name: pauses
-- Those that have not ended, in order, column by column as in
-- jobpool.store.records.operating.PauseRow.
SELECT what, name, since_ms, until_ms, who, note
FROM jobpool_pauses
WHERE until_ms IS NULL OR until_ms > :now_ms
ORDER BY what, name

-- name: prune_pauses
-- They have ended, and count for nothing already.
DELETE FROM jobpool_pauses WHERE until_ms <= :now_ms
