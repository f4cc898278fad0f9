"""Running a handler in its child: arguments in, completion out.

May import: client.payload, client.declare. Start with `invocation`.
"""
