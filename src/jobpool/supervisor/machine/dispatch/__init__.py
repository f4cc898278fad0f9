"""Which leases to ask for, and which slot gets which job.

May import: machine.attempts, machine.admission, machine.state. Start with `dispatcher`.
"""
