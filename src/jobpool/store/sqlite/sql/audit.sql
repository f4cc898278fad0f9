-- What operators have done: rows written in the transactions that did it.

-- name: add_audit
-- One action.
INSERT INTO jobpool_audit (
  at_ms, who, role, origin, action, target, jobs, changed, note
)
VALUES (:now_ms, :who, :role, :origin, :action, :target, :jobs, :changed, :note)
RETURNING id

-- name: extend_audit
-- One that goes on: what it has done by now. No row: it was deleted meanwhile.
UPDATE jobpool_audit
SET target = :target, jobs = :jobs, changed = :changed
WHERE id = :id
RETURNING id

-- name: amend_audit
-- Without what named somebody whose data is erased.
UPDATE jobpool_audit
SET target = :target, note = :note
WHERE id = :id

-- name: find_audits
-- Newest first, column by column as in jobpool.store.records.operating.AuditRow.
SELECT who, role, origin, action, target, jobs, changed, note, id, at_ms
FROM jobpool_audit
WHERE id < :before_id
  AND (:since_ms IS NULL OR at_ms >= :since_ms)
  AND (:who IS NULL OR instr(who, :who) > 0)
  AND (:action IS NULL OR action = :action)
ORDER BY id DESC
LIMIT :limit

-- name: prune_audit
-- Written before the retention period.
DELETE FROM jobpool_audit
WHERE id IN (
    SELECT id
    FROM jobpool_audit
    WHERE at_ms < :before_ms
    ORDER BY at_ms
    LIMIT :limit
  )
