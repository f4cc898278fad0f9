"""What people do to jobs: who may do it, the change, and its row in the audit trail.

May import: core, store. Start with operate.py; an action is a struct with its steps.
"""
