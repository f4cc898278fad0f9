"""Gates: may this job begin now, and if not, why?

May import: core, supervisor.machine.commands, supervisor.machine.inputs,
supervisor.machine.state. Start with `gate`.
"""
