-- Enqueueing from any language: INSERT INTO jobpool_enqueue (kind, arguments) VALUES (…).

-- Has no rows: each that is inserted becomes a job. Times are seconds from now, but
-- run_at, which is one since 1970.
CREATE VIEW jobpool_enqueue AS
SELECT
  NULL AS kind,
  NULL AS arguments,
  NULL AS pool,
  NULL AS priority,
  NULL AS run_in_s,
  NULL AS run_at,
  NULL AS key,
  NULL AS unique_text,
  NULL AS tenant,
  NULL AS max_attempts,
  NULL AS timeout_s,
  NULL AS memory_bytes,
  NULL AS expires_in_s
WHERE 0;

CREATE TRIGGER jobpool_enqueued INSTEAD OF INSERT ON jobpool_enqueue
BEGIN
  SELECT RAISE(ABORT, 'jobpool_enqueue: kind is no kind of a handler; nothing was enqueued')
  WHERE typeof(new.kind) <> 'text' OR trim(new.kind) = '' OR new.kind LIKE 'jobpool:%';
  SELECT RAISE(ABORT, 'jobpool_enqueue: arguments are no JSON object; give them by name, such as {"to": "ann"}; nothing was enqueued')
  WHERE new.arguments IS NOT NULL AND iif(
    json_valid(CAST(new.arguments AS TEXT)), json_type(CAST(new.arguments AS TEXT)), ''
  ) <> 'object';
  SELECT RAISE(ABORT, 'jobpool_enqueue: run_in_s and run_at are both given; nothing was enqueued')
  WHERE new.run_in_s IS NOT NULL AND new.run_at IS NOT NULL;
  SELECT RAISE(ABORT, 'jobpool_enqueue: run_in_s, run_at, timeout_s or expires_in_s is no number; nothing was enqueued')
  WHERE typeof(coalesce(new.run_in_s, 0)) NOT IN ('integer', 'real')
    OR typeof(coalesce(new.run_at, 0)) NOT IN ('integer', 'real')
    OR typeof(coalesce(new.timeout_s, 0)) NOT IN ('integer', 'real')
    OR typeof(coalesce(new.expires_in_s, 0)) NOT IN ('integer', 'real');
  SELECT RAISE(ABORT, 'jobpool_enqueue: kind, pool, key, unique_text or tenant is no text of 1 to 255 characters; nothing was enqueued')
  WHERE EXISTS (
    SELECT 1
    FROM (
      SELECT new.kind AS given
      UNION ALL SELECT new.pool
      UNION ALL SELECT new.key
      UNION ALL SELECT new.unique_text
      UNION ALL SELECT new.tenant
    ) AS texts
    WHERE length(texts.given) NOT BETWEEN 1 AND 255 OR instr(texts.given, char(0)) > 0
  );
  SELECT RAISE(ABORT, 'jobpool_enqueue: max_attempts, timeout_s, memory_bytes or expires_in_s is not above 0, or is too large; nothing was enqueued')
  WHERE CAST(new.max_attempts AS INTEGER) NOT BETWEEN 1 AND 2147483648
    OR CAST(new.memory_bytes AS INTEGER) NOT BETWEEN 1 AND 1152921504606846976
    OR new.timeout_s <= 0 OR new.timeout_s > 1.7976931348623157e308
    OR new.expires_in_s NOT BETWEEN 0.001 AND 253402300799;
  SELECT RAISE(ABORT, 'jobpool_enqueue: no supervisor has ever known this kind; start one whose application has it, or name its pool; nothing was enqueued')
  WHERE new.pool IS NULL
    AND NOT EXISTS (SELECT 1 FROM jobpool_newest_kinds AS n WHERE n.kind = new.kind);
  SELECT RAISE(ABORT, 'jobpool_enqueue: a job of this kind has this key with other arguments; nothing was enqueued')
  WHERE EXISTS (
    SELECT 1
    FROM jobpool_jobs AS j
    JOIN jobpool_payloads AS p ON p.job_id = j.id
    WHERE j.kind = new.kind AND j.key = new.key AND j.key IS NOT NULL
      AND json(CAST(p.payload AS TEXT))
        <> json(CAST(coalesce(new.arguments, '{}') AS TEXT))
  );

  INSERT INTO jobpool_jobs (
    kind, pool, state, priority, key, unique_text, tenant,
    max_attempts, timeout_s, memory_bytes, created_at_ms, run_at_ms, expires_at_ms
  )
  SELECT
    new.kind,
    coalesce(
      new.pool, (SELECT n.pool FROM jobpool_newest_kinds AS n WHERE n.kind = new.kind)
    ),
    iif(due.run_at_ms > due.now_ms, 'pending', 'runnable'),
    coalesce(new.priority, 0),
    new.key,
    new.unique_text,
    new.tenant,
    new.max_attempts,
    CAST(new.timeout_s AS REAL),
    new.memory_bytes,
    due.now_ms,
    due.run_at_ms,
    due.now_ms + CAST(new.expires_in_s * 1000 AS INTEGER)
  FROM (
    SELECT
      moment.now_ms,
      iif(
        new.run_at IS NULL,
        moment.now_ms + CAST(coalesce(new.run_in_s, 0) * 1000 AS INTEGER),
        CAST(new.run_at * 1000 AS INTEGER)
      ) AS run_at_ms
    FROM (
      SELECT
        CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) AS now_ms
    ) AS moment
  ) AS due
  WHERE NOT EXISTS (
    SELECT 1
    FROM jobpool_jobs AS j
    WHERE j.kind = new.kind AND j.key = new.key AND j.key IS NOT NULL
  ) AND NOT EXISTS (
    SELECT 1
    FROM jobpool_jobs AS j
    WHERE j.kind = new.kind AND j.unique_text = new.unique_text
      AND j.unique_text IS NOT NULL AND j.finished_at_ms IS NULL
  );

  -- Only of the job that was just made: it has no arguments yet.
  INSERT INTO jobpool_payloads (job_id, payload)
  SELECT last_insert_rowid(), CAST(json(coalesce(new.arguments, '{}')) AS BLOB)
  WHERE changes() > 0;

  UPDATE jobpool_meta
  SET value = min(CAST(value AS INTEGER) + 1, 9007199254740992)
  WHERE name = 'unfinished_at_most' AND changes() > 0;
END;
