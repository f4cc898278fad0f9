"""What attempts use: how it is counted, and which limits would fit it.

May import: nothing of ours. Start with `sketch`.
"""
