"""Gates: may this job begin now, and if not, why?

May import: machine.state. Start with `gate`.
"""
