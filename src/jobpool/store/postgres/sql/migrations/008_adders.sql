-- Members of flows that other members have added while they ran: by which job. When the
-- adder begins anew, what it has added is dropped: it adds that again.

-- lock:
LOCK TABLE jobpool.jobs, jobpool.flows IN ACCESS EXCLUSIVE MODE;

-- expand:
ALTER TABLE jobpool.jobs ADD COLUMN added_by bigint;

-- A job of it was erased while others had not ended: its key and its tenant go with its
-- end.
ALTER TABLE jobpool.flows ADD COLUMN is_erased boolean NOT NULL DEFAULT false;
