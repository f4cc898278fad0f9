-- Members of flows that other members have added while they ran: by which job. When the
-- adder begins anew, what it has added is dropped: it adds that again.
ALTER TABLE jobpool_jobs ADD COLUMN added_by INTEGER;

-- A job of it was erased while others had not ended: its key and its tenant go with its
-- end.
ALTER TABLE jobpool_flows ADD COLUMN is_erased INTEGER NOT NULL DEFAULT 0
CHECK (is_erased IN (0, 1));

-- As in the step to version 7: no row can fail it.
PRAGMA writable_schema = ON;
UPDATE sqlite_master
SET sql = replace(
  sql,
  'AND replays | 0 IS replays AND replaced_by | 0 IS replaced_by',
  'AND replays | 0 IS replays AND replaced_by | 0 IS replaced_by
    AND added_by | 0 IS added_by'
)
WHERE type = 'table' AND name = 'jobpool_jobs';
PRAGMA writable_schema = RESET;
