"""The command line: each command reads its arguments, makes one call, and prints."""

from __future__ import annotations


def main() -> None:
    """Run the command line; the entry point of the ``jobpool`` command."""
    from jobpool.cli.root import cli  # noqa: PLC0415 - importing a child pulls nothing in

    cli(prog_name="jobpool")
