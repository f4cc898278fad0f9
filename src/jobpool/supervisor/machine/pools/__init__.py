"""How many slots a pool has, and the application that its zygote has loaded.

May import: core, supervisor.machine.admission, supervisor.machine.attempts,
supervisor.machine.commands, supervisor.machine.inputs, supervisor.machine.registry,
supervisor.machine.state. Start with `scaling`.
"""
