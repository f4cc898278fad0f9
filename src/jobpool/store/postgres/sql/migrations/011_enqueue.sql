-- Enqueueing from any language: SELECT jobpool.enqueue('shop.mail', '{"to": "ann"}').

-- expand:

-- Runs with the caller's rights and in the caller's transaction. Supervisors find the job
-- within a second of its commit: waking them takes a lock on the whole database.
CREATE FUNCTION jobpool.enqueue(
  kind text,
  arguments jsonb DEFAULT '{}',
  pool text DEFAULT NULL,
  priority integer DEFAULT 0,
  run_in interval DEFAULT NULL,
  run_at timestamptz DEFAULT NULL,
  key text DEFAULT NULL,
  unique_text text DEFAULT NULL,
  tenant text DEFAULT NULL,
  max_attempts integer DEFAULT NULL,
  timeout interval DEFAULT NULL,
  memory_bytes bigint DEFAULT NULL,
  expires_in interval DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  now_ms constant bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
  due_ms bigint := now_ms;
  found_id bigint;
  held bytea;
  wanted text := pool;
BEGIN
  IF kind IS NULL OR kind !~ '\S' OR kind LIKE 'jobpool:%' THEN
    RAISE EXCEPTION 'jobpool.enqueue: % is no kind of a handler; nothing was enqueued',
      coalesce(quote_literal(left(kind, 60)), 'NULL')
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF arguments IS NULL OR jsonb_typeof(arguments) <> 'object' THEN
    RAISE EXCEPTION 'jobpool.enqueue: the arguments of % are no JSON object; nothing was enqueued', left(kind, 60)
      USING ERRCODE = 'invalid_parameter_value',
        HINT = 'Give arguments by name, such as ''{"to": "ann"}''.';
  END IF;
  IF run_in IS NOT NULL AND run_at IS NOT NULL THEN
    RAISE EXCEPTION 'jobpool.enqueue: run_in and run_at are both given; nothing was enqueued'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF wanted IS NULL THEN
    SELECT n.pool INTO wanted FROM jobpool.newest_kinds AS n WHERE n.kind = kind;
    IF wanted IS NULL THEN
      RAISE EXCEPTION 'jobpool.enqueue: no supervisor has ever known the kind %; nothing was enqueued', quote_literal(left(kind, 60))
        USING ERRCODE = 'invalid_parameter_value',
          HINT = 'Start a supervisor whose application has it, or name its pool: pool => ''io''.';
    END IF;
  END IF;
  IF EXISTS (
    SELECT 1 FROM unnest(ARRAY[kind, wanted, key, unique_text, tenant]) AS texts (given)
    WHERE length(texts.given) NOT BETWEEN 1 AND 255
  ) THEN
    RAISE EXCEPTION 'jobpool.enqueue: kind, pool, key, unique_text or tenant of % is no text of 1 to 255 characters; nothing was enqueued', left(kind, 60)
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF max_attempts < 1
    OR memory_bytes NOT BETWEEN 1 AND 1152921504606846976
    OR extract(epoch FROM timeout) <= 0 OR extract(epoch FROM timeout) = 'Infinity'
    OR extract(epoch FROM expires_in) NOT BETWEEN 0.001 AND 253402300799
  THEN
    RAISE EXCEPTION 'jobpool.enqueue: max_attempts, timeout, memory_bytes or expires_in of % is not above 0, or is too large; nothing was enqueued', left(kind, 60)
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF run_at IS NOT NULL THEN
    due_ms := floor(extract(epoch FROM run_at) * 1000);
  ELSIF run_in IS NOT NULL THEN
    due_ms := now_ms + floor(extract(epoch FROM run_in) * 1000);
  END IF;
  -- Whoever holds the key or the text may end, or commit, between two looks.
  FOR tries IN 1..20 LOOP
    IF key IS NOT NULL THEN
      SELECT j.id, j.payload INTO found_id, held
      FROM jobpool.jobs AS j
      WHERE j.kind = kind AND j.key = key;
      IF FOUND THEN
        IF convert_from(held, 'UTF8')::jsonb <> arguments THEN
          RAISE EXCEPTION 'jobpool.enqueue: job % of % has this key with other arguments; nothing was enqueued', found_id, left(kind, 60)
            USING ERRCODE = 'unique_violation';
        END IF;
        RETURN found_id;
      END IF;
    END IF;
    IF unique_text IS NOT NULL THEN
      SELECT j.id INTO found_id
      FROM jobpool.jobs AS j
      WHERE j.kind = kind AND j.unique_text = unique_text AND j.finished_at_ms IS NULL;
      IF FOUND THEN
        RETURN found_id;
      END IF;
    END IF;
    INSERT INTO jobpool.jobs (
      kind, pool, state, priority, key, unique_text, tenant,
      max_attempts, timeout_s, memory_bytes, created_at_ms, run_at_ms, expires_at_ms,
      payload
    )
    VALUES (
      kind, wanted, CASE WHEN due_ms > now_ms THEN 'pending' ELSE 'runnable' END,
      priority, key, unique_text, tenant,
      max_attempts, extract(epoch FROM timeout), memory_bytes, now_ms, due_ms,
      now_ms + floor(extract(epoch FROM expires_in) * 1000),
      convert_to(arguments::text, 'UTF8')
    )
    ON CONFLICT DO NOTHING
    RETURNING id INTO found_id;
    IF FOUND THEN
      RETURN found_id;
    END IF;
  END LOOP;
  RAISE EXCEPTION 'jobpool.enqueue: others hold the key or the unique text of %, and let go of it again and again; nothing was enqueued', left(kind, 60)
    USING ERRCODE = 'serialization_failure', HINT = 'Try again.';
END
$$;
