"""What is said of one job: how its attempts ended, what its row says. Pure.

May import: core, store, words.figures.
"""
