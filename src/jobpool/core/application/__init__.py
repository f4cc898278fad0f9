"""What the engine knows of an application: its handlers, without their code.

May import: core.jobs, core.rules. Start with `protocol`.
"""
