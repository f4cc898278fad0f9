-- Fairness under pressure. In this order: shares; breakers and retry budgets; admission;
-- debounce; reports of runs. Whoever adds to a part does so at its end.

-- Shares. A row for each pool with shares: what opens a lane there leaves a note, and
-- claims find out whose turn it is. `clocks`: JSON, by priority: the virtual time that
-- claims have come to.
CREATE TABLE jobpool_fair_pools (
  pool TEXT PRIMARY KEY NOT NULL CHECK (pool < x''),
  clocks TEXT NOT NULL DEFAULT '{}' CHECK (clocks < x'')
) WITHOUT ROWID;

-- Whose turn it is: `who` is a tenant ('': jobs without one), or the kind. `vtime` is the
-- same for all kinds of one, and a start adds 1 / weight to it. `waits`: it may have an
-- open lane.
CREATE TABLE jobpool_shares (
  id INTEGER PRIMARY KEY NOT NULL,
  pool TEXT NOT NULL CHECK (pool < x''),
  priority INTEGER NOT NULL CHECK (priority | 0 IS priority),
  who TEXT NOT NULL CHECK (who < x''),
  kind TEXT NOT NULL CHECK (kind < x''),
  vtime REAL NOT NULL DEFAULT 0 CHECK (vtime < ''),
  waits INTEGER NOT NULL DEFAULT 0 CHECK (waits IN (0, 1))
);

CREATE UNIQUE INDEX jobpool_shares_whose ON jobpool_shares (pool, priority, who, kind);
CREATE INDEX jobpool_shares_waiting
ON jobpool_shares (pool, kind, priority DESC, vtime, who) WHERE waits = 1;

-- A lane of these has opened; or, `refund`, starts that never were go back to its share.
CREATE TABLE jobpool_share_notes (
  id INTEGER PRIMARY KEY NOT NULL,
  pool TEXT NOT NULL CHECK (pool < x''),
  kind TEXT NOT NULL CHECK (kind < x''),
  priority INTEGER NOT NULL CHECK (priority | 0 IS priority),
  tenant TEXT CHECK (tenant < x''),
  refund INTEGER NOT NULL DEFAULT 0 CHECK (refund | 0 IS refund)
);

CREATE INDEX jobpool_share_notes_of_pool ON jobpool_share_notes (pool, id);

-- In fair pools: whose turn a lane's jobs were to take, when it was blocked.
ALTER TABLE jobpool_lanes ADD COLUMN turn REAL CHECK (turn < '');

CREATE INDEX jobpool_lanes_of_tenant
ON jobpool_lanes (pool, kind, priority, coalesce(tenant, ''), vtime, id)
WHERE waits = 1 AND open_at_ms = 0 AND blocked_by IS NULL;
CREATE INDEX jobpool_lanes_in_turn ON jobpool_lanes (blocked_by, rank DESC, turn, id)
WHERE blocked_by IS NOT NULL AND turn IS NOT NULL;

CREATE TRIGGER jobpool_lane_is_made
AFTER INSERT ON jobpool_lanes
WHEN new.waits = 1 AND new.open_at_ms = 0 AND new.blocked_by IS NULL
  AND EXISTS (SELECT 1 FROM jobpool_fair_pools AS f WHERE f.pool = new.pool)
BEGIN
  INSERT INTO jobpool_share_notes (pool, kind, priority, tenant)
  VALUES (new.pool, new.kind, new.priority, new.tenant);
END;

CREATE TRIGGER jobpool_lane_opens
AFTER UPDATE OF waits, open_at_ms, blocked_by ON jobpool_lanes
WHEN new.waits = 1 AND new.open_at_ms = 0 AND new.blocked_by IS NULL
  AND NOT (old.waits = 1 AND old.open_at_ms = 0 AND old.blocked_by IS NULL)
  AND EXISTS (SELECT 1 FROM jobpool_fair_pools AS f WHERE f.pool = new.pool)
BEGIN
  INSERT INTO jobpool_share_notes (pool, kind, priority, tenant)
  VALUES (new.pool, new.kind, new.priority, new.tenant);
END;

-- Breakers and retry budgets.

-- Debounce. What few of the jobs with a unique text need, apart from the jobs, so that the others
-- cost nothing more. `waits`: another job has the text; this one gets it when that has
-- ended. `until_start`: it gives the text up when it is leased. The counts are of
-- enqueues that have given it other arguments, and that have also postponed it.
CREATE TABLE jobpool_debounced (
  job_id INTEGER PRIMARY KEY NOT NULL,
  kind TEXT NOT NULL CHECK (kind < x''),
  unique_text TEXT NOT NULL CHECK (unique_text < x''),
  waits INTEGER NOT NULL DEFAULT 0 CHECK (waits IN (0, 1)),
  until_start INTEGER NOT NULL DEFAULT 0 CHECK (until_start IN (0, 1)),
  replacements INTEGER NOT NULL DEFAULT 0 CHECK (replacements | 0 IS replacements),
  postponements INTEGER NOT NULL DEFAULT 0 CHECK (postponements | 0 IS postponements)
);

CREATE UNIQUE INDEX jobpool_debounced_text ON jobpool_debounced (kind, unique_text)
WHERE waits = 1;
CREATE INDEX jobpool_debounced_waiting ON jobpool_debounced (job_id) WHERE waits = 1;

-- Whoever ends a job, and however. What these miss (a row that is simply gone) is found
-- by a search at intervals.
CREATE TRIGGER jobpool_job_passes_text_on
AFTER UPDATE OF finished_at_ms ON jobpool_jobs
WHEN old.unique_text IS NOT NULL
  AND old.finished_at_ms IS NULL AND new.finished_at_ms IS NOT NULL
BEGIN
  UPDATE jobpool_jobs
  SET state = 'pending', unique_text = old.unique_text
  WHERE state = 'waiting' AND id = (
      SELECT d.job_id
      FROM jobpool_debounced AS d
      WHERE d.waits = 1 AND d.kind = old.kind AND d.unique_text = old.unique_text
    );
  UPDATE jobpool_debounced
  SET waits = 0
  WHERE waits = 1 AND kind = old.kind AND unique_text = old.unique_text;
END;

CREATE TRIGGER jobpool_job_gives_text_up
AFTER UPDATE OF state ON jobpool_jobs
WHEN new.state = 'leased' AND new.unique_text IS NOT NULL
BEGIN
  UPDATE jobpool_jobs
  SET unique_text = NULL
  WHERE id = new.id AND EXISTS (
      SELECT 1
      FROM jobpool_debounced AS d
      WHERE d.job_id = new.id AND d.until_start = 1
    );
END;

-- Nobody would find it any more.
CREATE TRIGGER jobpool_debounced_is_deleted
AFTER DELETE ON jobpool_debounced
WHEN old.waits <> 0
BEGIN
  UPDATE jobpool_jobs SET state = 'pending' WHERE id = old.job_id AND state = 'waiting';
END;

-- As `jobpool_job_records`, for these jobs only.
CREATE VIEW jobpool_debounced_records AS
SELECT
  d.job_id,
  d.unique_text AS shared_text,
  d.until_start,
  d.replacements,
  d.postponements,
  CASE WHEN d.waits = 1 THEN (
    SELECT h.id
    FROM jobpool_jobs AS h
    WHERE h.kind = d.kind AND h.unique_text = d.unique_text
      AND h.unique_text IS NOT NULL AND h.finished_at_ms IS NULL
  ) END AS follows
FROM jobpool_debounced AS d;

-- Admission: how many jobs of a tenant are due and wait, and the oldest of them.
CREATE INDEX jobpool_jobs_of_tenant
ON jobpool_jobs (tenant, run_at_ms)
WHERE state = 'runnable' AND tenant IS NOT NULL;

-- Reports of runs, as JSON: the newest one of each.
CREATE TABLE jobpool_reports (
  run_id TEXT PRIMARY KEY NOT NULL CHECK (run_id < x''),
  at_ms INTEGER NOT NULL CHECK (at_ms | 0 IS at_ms),
  report TEXT NOT NULL CHECK (report < x'')
) WITHOUT ROWID;

-- What due jobs wait for: seconds of all of them together, sampled by one supervisor, in
-- slots of five minutes.
CREATE TABLE jobpool_waits (
  slot_ms INTEGER NOT NULL CHECK (slot_ms | 0 IS slot_ms),
  kind TEXT NOT NULL CHECK (kind < x''),
  pool TEXT NOT NULL CHECK (pool < x''),
  cause TEXT NOT NULL CHECK (cause < x''),
  job_s REAL NOT NULL CHECK (job_s < ''),
  PRIMARY KEY (slot_ms, kind, pool, cause)
) WITHOUT ROWID;

INSERT INTO jobpool_meta (name, value) VALUES ('waits_sampled_ms', 0);
