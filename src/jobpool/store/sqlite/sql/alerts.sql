-- Incidents, and what is told about them.

-- name: get_watch
-- The one row of whoever watches.
SELECT turn, at_ms, notes FROM jobpool_watch

-- name: take_watch
-- Changes nothing if somebody else has had this turn.
INSERT INTO jobpool_watch (id, turn, at_ms, notes)
VALUES (1, :turn + 1, :now_ms, :notes)
ON CONFLICT (id) DO UPDATE
SET turn = excluded.turn, at_ms = excluded.at_ms, notes = excluded.notes
WHERE jobpool_watch.turn = :turn

-- name: open_incident
-- No row: it is open already.
INSERT INTO jobpool_incidents (rule, subject, summary, opened_at_ms)
VALUES (:rule, :subject, :summary, :now_ms)
ON CONFLICT DO NOTHING
RETURNING id, rule, subject, summary, opened_at_ms, ended_at_ms

-- name: end_incident
-- No row: it has ended already.
UPDATE jobpool_incidents
SET ended_at_ms = :now_ms
WHERE id = :id AND ended_at_ms IS NULL
RETURNING id, rule, subject, summary, opened_at_ms, ended_at_ms

-- name: add_alert
-- Nobody is told two of the same name.
INSERT INTO jobpool_alerts (name, receiver, incident, body, made_at_ms, next_at_ms)
VALUES (:name, :receiver, :incident, :body, :now_ms, :now_ms)
ON CONFLICT DO NOTHING

-- name: open_incidents
-- Newest first, column by column as in jobpool.store.records.alerts.Incident.
SELECT id, rule, subject, summary, opened_at_ms, ended_at_ms
FROM jobpool_incidents
WHERE ended_at_ms IS NULL
ORDER BY +id DESC
LIMIT :limit

-- name: ended_incidents
-- Those that ended last first.
SELECT id, rule, subject, summary, opened_at_ms, ended_at_ms
FROM jobpool_incidents
WHERE ended_at_ms IS NOT NULL
ORDER BY ended_at_ms DESC, id DESC
LIMIT :limit

-- name: get_alerts
-- Newest first, column by column as in jobpool.store.records.alerts.AlertRow.
SELECT
  id, name, receiver, incident, body, state, tries, made_at_ms, next_at_ms, done_at_ms,
  error
FROM jobpool_alerts
ORDER BY id DESC
LIMIT :limit

-- name: count_unsent
-- How many for :receivers, and since when the oldest is there.
SELECT count(*), min(made_at_ms)
FROM jobpool_alerts
WHERE done_at_ms IS NULL AND receiver IN (SELECT value FROM json_each(:receivers))

-- name: due_alerts
-- The one that has waited longest, for one of :receivers, and behind no other about the
-- same incident.
SELECT a.id
FROM jobpool_alerts AS a
WHERE a.done_at_ms IS NULL
  AND a.next_at_ms <= :now_ms
  AND a.receiver IN (SELECT value FROM json_each(:receivers))
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_alerts AS b
    WHERE b.done_at_ms IS NULL
      AND b.incident = a.incident AND b.receiver = a.receiver AND b.id < a.id
  )
ORDER BY a.next_at_ms, a.id
LIMIT 1

-- name: claim_alert
-- No row: somebody else has it.
UPDATE jobpool_alerts
SET state = 'sending', tries = tries + 1, next_at_ms = :until_ms
WHERE id = :id AND done_at_ms IS NULL AND next_at_ms <= :now_ms
RETURNING
  id, name, receiver, incident, body, state, tries, made_at_ms, next_at_ms, done_at_ms,
  error

-- name: settle_alert
-- By whoever has claimed it last: each claim counts as a try.
UPDATE jobpool_alerts
SET state = :state, next_at_ms = :next_at_ms, done_at_ms = :done_at_ms, error = :error
WHERE id = :id AND tries = :tries AND state = 'sending'

-- name: abandon_alerts
-- Made long ago for others than :receivers: whoever would have sent them is gone.
UPDATE jobpool_alerts
SET state = 'failed', next_at_ms = NULL, done_at_ms = :now_ms, error = :error
WHERE done_at_ms IS NULL
  AND made_at_ms < :before_ms
  AND receiver NOT IN (SELECT value FROM json_each(:receivers))

-- name: prune_alerts
-- Sent, or given up, too long ago.
DELETE FROM jobpool_alerts
WHERE id IN (
    SELECT id
    FROM jobpool_alerts
    WHERE done_at_ms IS NOT NULL AND done_at_ms < :before_ms
    ORDER BY done_at_ms
    LIMIT :limit
  )

-- name: prune_incidents
-- Ended too long ago.
DELETE FROM jobpool_incidents
WHERE id IN (
    SELECT id
    FROM jobpool_incidents
    WHERE ended_at_ms IS NOT NULL AND ended_at_ms < :before_ms
    ORDER BY ended_at_ms
    LIMIT :limit
  )

-- name: count_endings
-- By kind: jobs that have succeeded since a moment, jobs that became dead or quarantined
-- since another, attempts after :after_id that failed; the newest :most of each. Last, how
-- many of them since the first moment.
SELECT kind, 'succeeded', count(*), count(*)
FROM (
  SELECT kind
  FROM jobpool_jobs
  WHERE state = 'succeeded' AND finished_at_ms >= :since_ms
  ORDER BY finished_at_ms DESC
  LIMIT :most
)
GROUP BY kind
UNION ALL
SELECT kind, 'dead', count(*), count(*) FILTER (WHERE finished_at_ms >= :since_ms)
FROM (
  SELECT kind, finished_at_ms
  FROM jobpool_jobs
  WHERE state = 'dead' AND finished_at_ms >= :lost_since_ms
  ORDER BY finished_at_ms DESC
  LIMIT :most
)
GROUP BY kind
UNION ALL
SELECT kind, 'quarantined', count(*), count(*) FILTER (WHERE finished_at_ms >= :since_ms)
FROM (
  SELECT kind, finished_at_ms
  FROM jobpool_jobs
  WHERE state = 'quarantined' AND finished_at_ms >= :lost_since_ms
  ORDER BY finished_at_ms DESC
  LIMIT :most
)
GROUP BY kind
UNION ALL
SELECT j.kind, 'failed', count(*), count(*)
FROM (
  SELECT job_id, outcome
  FROM jobpool_attempts
  WHERE id > :after_id
  ORDER BY id DESC
  LIMIT :most
) AS tried
CROSS JOIN jobpool_jobs AS j ON j.id = tried.job_id
WHERE tried.outcome NOT IN ('interrupted', 'canceled', 'lost')
GROUP BY j.kind

-- name: last_attempt
-- The newest that did not succeed.
SELECT max(id) FROM jobpool_attempts

-- name: stuck_flows
-- Of the oldest open flows: those of which nothing runs, is delayed or waits for a person,
-- and nothing has ended or fallen due since a moment.
SELECT f.id, f.name
FROM (
  SELECT id, name
  FROM jobpool_flows
  WHERE finished_at_ms IS NULL AND state = 'open' AND created_at_ms < :before_ms
  ORDER BY id
  LIMIT :most
) AS f
WHERE NOT EXISTS (
    SELECT 1
    FROM jobpool_steps AS s
    CROSS JOIN jobpool_jobs AS j ON j.step = s.id
    WHERE s.flow = f.id AND j.finished_at_ms IS NULL
      AND (
        j.state IN ('leased', 'pending')
        OR (j.state = 'runnable' AND j.run_at_ms >= :before_ms)
        OR (s.is_external = 1 AND s.state = 'ready')
      )
  )
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_steps AS s
    CROSS JOIN jobpool_jobs AS j ON j.step = s.id
    WHERE s.flow = f.id AND j.finished_at_ms >= :before_ms
  )
ORDER BY f.id
