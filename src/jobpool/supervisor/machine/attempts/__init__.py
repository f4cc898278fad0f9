"""An attempt's life in its slot, from its start to the charge for its end.

May import: machine.state, machine.admission. Start with `running`.
"""
