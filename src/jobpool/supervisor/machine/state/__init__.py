"""What the machine remembers: slots, pools, and the step that it is in.

May import: core, sandbox, store, supervisor.machine.commands,
supervisor.machine.inputs, supervisor.machine.registry. Start with `slot`.
"""
