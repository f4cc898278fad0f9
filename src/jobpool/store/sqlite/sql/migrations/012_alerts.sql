-- Alerts. What is wrong with the queue, of a rule and of what it is about ('': all of it).
CREATE TABLE jobpool_incidents (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  rule TEXT NOT NULL CHECK (rule < x''),
  subject TEXT NOT NULL CHECK (subject < x''),
  summary TEXT NOT NULL CHECK (summary < x''),
  opened_at_ms INTEGER NOT NULL CHECK (opened_at_ms | 0 IS opened_at_ms),
  ended_at_ms INTEGER CHECK (ended_at_ms | 0 IS ended_at_ms)
);

CREATE UNIQUE INDEX jobpool_incidents_open ON jobpool_incidents (rule, subject)
WHERE ended_at_ms IS NULL;
CREATE INDEX jobpool_incidents_ended ON jobpool_incidents (ended_at_ms)
WHERE ended_at_ms IS NOT NULL;

-- What is to be told, and to whom. `name` says what: a receiver hears it once. `next_at_ms`:
-- when it is tried; of one that is being sent: when whoever does so is taken to be gone.
CREATE TABLE jobpool_alerts (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL CHECK (name < x''),
  receiver TEXT NOT NULL CHECK (receiver < x''),
  incident INTEGER CHECK (incident | 0 IS incident),
  body TEXT NOT NULL CHECK (body < x''),
  state TEXT NOT NULL DEFAULT 'waiting' CHECK (
    state = 'waiting' OR state = 'sending' OR state = 'sent' OR state = 'failed'
  ),
  tries INTEGER NOT NULL DEFAULT 0 CHECK (tries | 0 IS tries),
  made_at_ms INTEGER NOT NULL CHECK (made_at_ms | 0 IS made_at_ms),
  next_at_ms INTEGER CHECK (next_at_ms | 0 IS next_at_ms),
  done_at_ms INTEGER CHECK (done_at_ms | 0 IS done_at_ms),
  error TEXT CHECK (error < x''),
  CONSTRAINT done_means_done CHECK (
    (done_at_ms IS NULL) = (state IN ('waiting', 'sending'))
    AND (next_at_ms IS NULL) = (done_at_ms IS NOT NULL)
  ),
  CONSTRAINT sent_means_tried CHECK (tries > 0 OR state IN ('waiting', 'failed'))
);

CREATE UNIQUE INDEX jobpool_alerts_name ON jobpool_alerts (name, receiver);
CREATE INDEX jobpool_alerts_next ON jobpool_alerts (next_at_ms) WHERE done_at_ms IS NULL;
CREATE INDEX jobpool_alerts_done ON jobpool_alerts (done_at_ms)
WHERE done_at_ms IS NOT NULL;

-- The one row of whoever watches the queue: how many have looked so far, when the last
-- one did, and as JSON what it noted for the next.
CREATE TABLE jobpool_watch (
  id INTEGER PRIMARY KEY NOT NULL CHECK (id = 1),
  turn INTEGER NOT NULL CHECK (turn | 0 IS turn),
  at_ms INTEGER NOT NULL CHECK (at_ms | 0 IS at_ms),
  notes TEXT NOT NULL CHECK (notes < x'')
);
