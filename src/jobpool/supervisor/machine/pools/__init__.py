"""How many slots a pool has, and the application that its zygote has loaded.

May import: machine.attempts, machine.state. Start with `scaling`.
"""
