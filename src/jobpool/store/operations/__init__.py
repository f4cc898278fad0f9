"""The store's methods, written once in terms of named queries.

A database brings its `Session`, its `Database`, and SQL under the same names; what is
decided in Python is decided here, so that two databases cannot decide differently.
"""
