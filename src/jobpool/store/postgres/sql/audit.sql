-- What operators have done: rows written in the transactions that did it.

-- name: add_audit
-- One action.
INSERT INTO jobpool.audit (
  at_ms, who, role, origin, action, target, jobs, changed, note
)
VALUES (
  %(now_ms)s, %(who)s, %(role)s, %(origin)s, %(action)s, %(target)s, %(jobs)s,
  %(changed)s, %(note)s
)
RETURNING id

-- name: extend_audit
-- One that goes on: what it has done by now. No row: it was deleted meanwhile.
UPDATE jobpool.audit
SET target = %(target)s, jobs = %(jobs)s, changed = %(changed)s
WHERE id = %(id)s
RETURNING id

-- name: amend_audit
-- Without what named somebody whose data is erased.
UPDATE jobpool.audit
SET target = %(target)s, note = %(note)s
WHERE id = %(id)s

-- name: find_audits
-- Newest first, column by column as in jobpool.store.records.operating.AuditRow.
SELECT who, role, origin, action, target, jobs, changed, note, id, at_ms
FROM jobpool.audit
WHERE id < %(before_id)s
  AND (%(since_ms)s::bigint IS NULL OR at_ms >= %(since_ms)s::bigint)
  AND (%(who)s::text IS NULL OR strpos(who, %(who)s::text) > 0)
  AND (%(action)s::text IS NULL OR action = %(action)s::text)
ORDER BY id DESC
LIMIT %(limit)s

-- name: prune_audit
-- Written before the retention period.
DELETE FROM jobpool.audit
WHERE id = ANY (
  ARRAY(
    SELECT id
    FROM jobpool.audit
    WHERE at_ms < %(before_ms)s
    ORDER BY at_ms
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
  )
)
