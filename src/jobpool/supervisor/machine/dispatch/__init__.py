"""Which leases to ask for, and which slot gets which job.

May import: core, supervisor.machine.admission, supervisor.machine.attempts,
supervisor.machine.commands, supervisor.machine.inputs, supervisor.machine.state. Start
with `dispatcher`.
"""
