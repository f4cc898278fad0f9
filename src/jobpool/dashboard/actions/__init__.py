"""What forms do: each becomes an action of the operations, and nothing past them.

May import: client, core, dashboard.asked, dashboard.screens, operations, store, words.
One file has the forms of one thing.
"""
