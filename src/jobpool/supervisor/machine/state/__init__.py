"""What the machine remembers: slots, pools, and the step that it is in.

May import: machine.inputs, machine.commands. Start with `slot`.
"""
