"""Glances of `jobpool top`, made by hand."""

import io

from rich.console import Console

from jobpool.cli.watch.top.frame import frame
from jobpool.cli.watch.top.glance import Glance, Host, PoolRow, Running
from jobpool.core.jobs.job import Job, JobState
from jobpool.store.records.reading import EndRow

NOW_MS = 1_800_000_000_000
MIB = 2**20
_BLANK = dict.fromkeys(Job.__struct_fields__)


def job_row(job_id=1, **facts):
    """Return a leased job that has run for a minute."""
    counts = dict.fromkeys(
        (
            *("priority", "failures", "crashes", "interruptions", "recoveries"),
            *("created_at_ms", "run_at_ms", "snoozes", "replacements", "postponements"),
        ),
        0,
    )
    usual = {
        "id": job_id,
        "kind": "shop.thumbnail",
        "pool": "cpu",
        "state": JobState.LEASED,
        "attempt": 1,
        "cancel_requested": False,
        "until_start": False,
        "ref": "",
        "supervisor": "run-1",
        "slot": "cpu/0",
        "rss_bytes": 256 * MIB,
        "started_at_ms": NOW_MS - 60_000,
    }
    return Job(**{**_BLANK, **counts, **usual, **facts})


def running_row(job_id=1, ran_s=60.0, limit_bytes=512 * MIB, **facts):
    """Return what runs."""
    return Running(
        job=job_row(job_id, **facts),
        host="web-1",
        limit_bytes=limit_bytes,
        limit_s=600.0,
        began_ms=NOW_MS - round(ran_s * 1000),
    )


def end_row(job_id=1, **facts):
    """Return an attempt that ran out of memory, ten seconds ago."""
    usual = {
        "kind": "shop.scan",
        "pool": "cpu",
        "state": "dead",
        "tries": 3,
        "attempt": 3,
        "outcome": "out_of_memory",
        "reason": "used 513 MiB of 512 MiB",
        "error_class": None,
        "finished_at_ms": NOW_MS - 10_000,
        "duration_s": 3.0,
        "peak_rss_bytes": 513 * MIB,
    }
    return EndRow(job_id=job_id, **{**usual, **facts})


def pool_row(name="cpu", size=4, busy=0, running=(), **facts):
    """Return a pool of one host."""
    usual = {
        "hosts": (Host(run_id="run-1", size=size, busy=busy),),
        "ends_per_s": 0.0,
        "due": 0,
        "blocked": 0,
        "later": 0,
        "oldest_s": None,
        "causes": (),
        "pause": None,
    }
    return PoolRow(name=name, running=tuple(running), **{**usual, **facts})


def glance(running=(), deaths=(), pools=None, **facts):
    """Return a glance at one supervisor with a pool."""
    usual = {
        "at_ms": NOW_MS,
        "url": "sqlite:////srv/jobpool.db",
        "alive": 1,
        "silent": (),
        "begun": 0,
        "pauses": (),
        "dead": 0,
        "quarantined": 0,
        "counted_ms": NOW_MS,
        "kinds_paused": frozenset(),
    }
    pools = (pool_row(running=running),) if pools is None else pools
    return Glance(
        running=tuple(running),
        deaths=tuple(deaths),
        pools=tuple(pools),
        **{**usual, **facts},
    )


def lines_of(seen, view, width=100, height=30, **more):
    """Return a picture's lines, without colours."""
    drawn = frame(seen, view, width=width, height=height, now_ms=NOW_MS, **more)
    return [line.plain.rstrip() for line in drawn]


def printed(lines, *, no_color=False):
    """Return what a terminal gets of lines."""
    screen = Console(
        file=io.StringIO(),
        width=200,
        force_terminal=True,
        color_system="standard",
        no_color=no_color,
        markup=False,
        highlight=False,
    )
    for line in lines:
        screen.print(line)
    return screen.file.getvalue()
