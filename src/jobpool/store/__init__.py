"""Durable truth: jobs, attempts, leases. Knows databases and no process."""
