"""Gates: may this job begin now, and if not, why?

May import: core, sandbox, supervisor.machine.commands, supervisor.machine.inputs,
supervisor.machine.state. Start with `gate`.
"""
