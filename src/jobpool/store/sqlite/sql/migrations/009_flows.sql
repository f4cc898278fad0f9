-- Flows: jobs that wait for each other. The tables that the step to version 7 has made
-- for them have never been written.
DROP TABLE jobpool_flows;
DROP TABLE jobpool_steps;
DROP TABLE jobpool_edges;
DROP TABLE jobpool_flow_notes;

-- `ending`: why nothing more of it is to begin; NULL: no reason. `builder`: the token of
-- whoever stores it, `touched_at_ms`: when that was last seen to do so.
CREATE TABLE jobpool_flows (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL CHECK (name < x''),
  key TEXT CHECK (key < x''),
  tenant TEXT CHECK (tenant < x''),
  state TEXT NOT NULL CHECK (
    state = 'building' OR state = 'open' OR state = 'paused'
    OR state = 'succeeded' OR state = 'failed' OR state = 'canceled'
  ),
  failure TEXT NOT NULL CHECK (failure = 'fail' OR failure = 'continue'),
  ending TEXT CHECK (ending = 'fail' OR ending = 'cancel'),
  generation INTEGER NOT NULL DEFAULT 1 CHECK (generation | 0 IS generation),
  builder TEXT CHECK (builder < x''),
  created_at_ms INTEGER NOT NULL CHECK (created_at_ms | 0 IS created_at_ms),
  touched_at_ms INTEGER CHECK (touched_at_ms | 0 IS touched_at_ms),
  finished_at_ms INTEGER CHECK (finished_at_ms | 0 IS finished_at_ms),
  CONSTRAINT ended_means_finished CHECK (
    (finished_at_ms IS NULL) = (state IN ('building', 'open', 'paused'))
  )
);

CREATE UNIQUE INDEX jobpool_flows_key ON jobpool_flows (name, key) WHERE key IS NOT NULL;
CREATE INDEX jobpool_flows_open ON jobpool_flows (id) WHERE finished_at_ms IS NULL;
CREATE INDEX jobpool_flows_ended ON jobpool_flows (state, finished_at_ms)
WHERE finished_at_ms IS NOT NULL;

-- `failed`: of one that has ended, or is to be skipped. `until_ms`: when the time of an
-- external one that is ready has run out.
CREATE TABLE jobpool_steps (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  flow INTEGER NOT NULL CHECK (flow | 0 IS flow),
  number INTEGER NOT NULL CHECK (number | 0 IS number),
  name TEXT NOT NULL CHECK (name < x''),
  state TEXT NOT NULL CHECK (
    state = 'closed' OR state = 'ready' OR state = 'skipping'
    OR state = 'done' OR state = 'skipped'
  ),
  failed INTEGER NOT NULL DEFAULT 0 CHECK (failed IN (0, 1)),
  hook TEXT CHECK (hook = 'success' OR hook = 'failure' OR hook = 'finish'),
  is_external INTEGER NOT NULL DEFAULT 0 CHECK (is_external IN (0, 1)),
  timeout_ms INTEGER CHECK (timeout_ms | 0 IS timeout_ms),
  until_ms INTEGER CHECK (until_ms | 0 IS until_ms)
);

CREATE UNIQUE INDEX jobpool_steps_of_flow ON jobpool_steps (flow, number);
CREATE INDEX jobpool_steps_until ON jobpool_steps (until_ms)
WHERE until_ms IS NOT NULL AND state = 'ready';
-- So a fold of a long chain does not read all of it.
CREATE INDEX jobpool_steps_left ON jobpool_steps (flow)
WHERE state IN ('closed', 'ready', 'skipping');
CREATE INDEX jobpool_steps_failed ON jobpool_steps (flow) WHERE failed = 1;

-- They join steps, so that a fan-in of 10,000 members is one edge.
CREATE TABLE jobpool_edges (
  flow INTEGER NOT NULL CHECK (flow | 0 IS flow),
  from_step INTEGER NOT NULL CHECK (from_step | 0 IS from_step),
  to_step INTEGER NOT NULL CHECK (to_step | 0 IS to_step),
  when_ended TEXT NOT NULL CHECK (
    when_ended = 'succeeded' OR when_ended = 'failed' OR when_ended = 'finished'
  ),
  PRIMARY KEY (from_step, to_step)
) WITHOUT ROWID;

CREATE INDEX jobpool_edges_in ON jobpool_edges (to_step);

-- Steps to be looked at: a member has ended, on whatever path, or is gone.
CREATE TABLE jobpool_flow_notes (step INTEGER PRIMARY KEY NOT NULL);

CREATE TRIGGER jobpool_member_ends
AFTER UPDATE OF finished_at_ms ON jobpool_jobs
WHEN new.step IS NOT NULL
  AND old.finished_at_ms IS NULL AND new.finished_at_ms IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM jobpool_flow_notes AS n WHERE n.step = new.step)
BEGIN
  INSERT INTO jobpool_flow_notes (step) VALUES (new.step);
END;

CREATE TRIGGER jobpool_member_is_deleted
AFTER DELETE ON jobpool_jobs
WHEN old.step IS NOT NULL AND old.finished_at_ms IS NULL
  AND NOT EXISTS (SELECT 1 FROM jobpool_flow_notes AS n WHERE n.step = old.step)
BEGIN
  INSERT INTO jobpool_flow_notes (step) VALUES (old.step);
END;

CREATE INDEX jobpool_jobs_of_flow_step ON jobpool_jobs (step, id) WHERE step IS NOT NULL;
CREATE INDEX jobpool_jobs_bad ON jobpool_jobs (step)
WHERE step IS NOT NULL AND replaced_by IS NULL
  AND (state = 'dead' OR state = 'quarantined' OR state = 'canceled');
