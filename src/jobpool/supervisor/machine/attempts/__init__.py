"""An attempt's life in its slot, from its start to the charge for its end.

May import: core, sandbox, supervisor.machine.commands, supervisor.machine.inputs,
supervisor.machine.registry, supervisor.machine.state. Start with `running`.
"""
