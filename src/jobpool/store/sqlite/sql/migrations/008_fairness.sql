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
  pool TEXT NOT NULL CHECK (pool < x''),
  priority INTEGER NOT NULL CHECK (priority | 0 IS priority),
  who TEXT NOT NULL CHECK (who < x''),
  kind TEXT NOT NULL CHECK (kind < x''),
  vtime REAL NOT NULL DEFAULT 0 CHECK (vtime < ''),
  waits INTEGER NOT NULL DEFAULT 0 CHECK (waits IN (0, 1)),
  PRIMARY KEY (pool, priority, who, kind)
) WITHOUT ROWID;

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
