"""What parent and child say to each other, and how far a child is believed.

May import: sandbox.system. Start with `messages`, then `verdict`.
"""
