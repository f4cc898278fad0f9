"""The command line: each command reads its arguments, makes one call, and prints."""
