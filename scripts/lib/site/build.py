"""Builds the manual and a reference as a static site; see scripts/site.

The pages are those of the package. The reference is written here, page by page, from
what is public: `jobpool`, `jobpool.errors`, `jobpool.testing`, codecs and the command's
help.
"""

from __future__ import annotations

import inspect
import logging
import shutil
import tempfile
import typing
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from mkdocs.commands.build import build
from mkdocs.config import load_config

import jobpool
from jobpool import testing
from jobpool.cli.root import cli
from jobpool.manual import pages

HERE = Path(__file__).parent
SITE = Path("build/site")
RAISED_BY_HANDLERS = (
    *("GiveUp", "RetryLater", "Snooze", "SoftMemory", "SoftTimeout"),
    "Throttled",
)
DECLARED = ("JobPool", "Handler", "Call", "Job", "Retry", "DeadJob")
ENDS_OF_CALLS = ("JobCrashed", "JobTimedOut", "JobOutOfMemory")


def main() -> None:
    """Write the pages into a directory of their own, and build the site from it."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    with tempfile.TemporaryDirectory() as directory:
        docs = Path(directory)
        navigation = [*write_manual(docs), {"Reference": write_reference(docs)}]
        config = load_config(
            str(HERE / "mkdocs.yml"),
            docs_dir=str(docs),
            site_dir=str(SITE.resolve()),
            nav=navigation,
            strict=True,
        )
        build(config)
    print(f"the site is in {SITE}")


def write_manual(docs: Path) -> list[dict[str, Any]]:
    """Copy the pages; return their part of the navigation."""
    shutil.copy(HERE / "site.css", docs)
    for topic in (pages.INDEX, *(entry.topic for entry in pages.entries())):
        (docs / f"{topic}.md").write_text(pages.text_of(topic))
    for picture in Path(pages.__file__).parent.glob("*.*g"):  # SVG and PNG
        shutil.copy(picture, docs)
    groups = groupby(pages.entries(), lambda entry: entry.group)
    return [
        {"Manual": f"{pages.INDEX}.md"},
        *(
            {group: [f"{entry.topic}.md" for entry in members]}
            for group, members in groups
        ),
    ]


def write_reference(docs: Path) -> list[str]:
    """Write what is public, by what it is for; return the pages."""
    (docs / "reference").mkdir()
    current = typing.get_type_hints(jobpool.current)["return"]
    home = "jobpool.client.declare.schedules"
    declared_elsewhere = {*DECLARED, *RAISED_BY_HANDLERS, *ENDS_OF_CALLS, "Executor"}
    errors = [
        name
        for name, found in vars(jobpool.errors).items()
        if inspect.isclass(found)
        and found.__module__ == jobpool.errors.__name__
        and not getattr(found, "_is_protocol", False)
        and name not in declared_elsewhere
    ]
    return [
        _page(docs, "Applications", (f"jobpool.{name}" for name in DECLARED)),
        _page(
            docs,
            "Schedules",
            [
                "jobpool.client.schedules.schedules.Schedules",
                f"{home}.ScheduleOptions",
                f"{home}.PolicyOptions",
                "jobpool.client.schedules.schedule.Schedule",
                "jobpool.client.schedules.schedule.Tick",
            ],
        ),
        _page(docs, "Quotas", ("jobpool.Quota", "jobpool.Permit")),
        _page(
            docs,
            "Handlers",
            [
                "jobpool.current",
                f"{current.__module__}.{current.__name__}",
                f"{current.__module__}.AttemptLimits",
                f"{current.__module__}.ScheduledTick",
                *(f"jobpool.errors.{name}" for name in RAISED_BY_HANDLERS),
            ],
        ),
        _page(
            docs,
            "Executor",
            ["jobpool.Executor", *(f"jobpool.errors.{one}" for one in ENDS_OF_CALLS)],
        ),
        _page(
            docs, "Codecs", ["jobpool.Codec", "jobpool.integrations.fernet.FernetCodec"]
        ),
        _page(docs, "Errors", (f"jobpool.errors.{name}" for name in errors)),
        _page(docs, "Testing", (f"jobpool.testing.{one}" for one in testing.__all__)),
        _commands(docs),
    ]


def _page(docs: Path, title: str, names: Iterable[str]) -> str:
    """Write a page that has the docstrings of some names; return its path."""
    path = f"reference/{title.lower()}.md"
    parts = [f"# {title}", *(f"::: {name}" for name in names)]
    (docs / path).write_text("\n\n".join(parts) + "\n")
    return path


def _commands(docs: Path) -> str:
    """Write a page that has each command's help; return its path."""
    root = click.Context(cli, info_name="jobpool")
    parts = ["# Commands", f"## jobpool\n\n```text\n{cli.get_help(root)}\n```"]
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        if command is None:
            raise LookupError(f"{name} is listed, but is no command")
        with click.Context(command, info_name=name, parent=root) as context:
            shown = command.get_help(context)
            parts.append(f"## jobpool {name}\n\n```text\n{shown}\n```")
            for below, one in getattr(command, "commands", {}).items():
                with click.Context(one, info_name=below, parent=context) as inner:
                    shown = one.get_help(inner)
                parts.append(f"## jobpool {name} {below}\n\n```text\n{shown}\n```")
    path = "reference/commands.md"
    (docs / path).write_text("\n\n".join(parts) + "\n")
    return path


if __name__ == "__main__":
    main()
