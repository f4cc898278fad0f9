"""The store on PostgreSQL: one queue for many supervisors on many hosts.

Importing this package needs psycopg; `jobpool.store.opening` says so if it is missing.
"""
