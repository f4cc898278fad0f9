-- Members of flows that other members have added while they ran: by which job. When the
-- adder begins anew, what it has added is dropped: it adds that again.

-- lock:
LOCK TABLE jobpool.jobs IN ACCESS EXCLUSIVE MODE;

-- expand:
ALTER TABLE jobpool.jobs ADD COLUMN added_by bigint;
