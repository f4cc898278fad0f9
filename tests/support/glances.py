"""Glances of `jobpool top`, made by hand."""

import io

from rich.console import Console

from jobpool.cli.watch.top.frame import frame
from jobpool.core.jobs.job import Job, JobState
from jobpool.monitoring.glance.glance import Glance, Host, PoolRow, Running
from jobpool.store.records.reading import EndRow

NOW_MS = 1_800_000_000_000
MIB, GIB = 2**20, 2**30
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
        "crashing": (),
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


def shop():
    """Return what the manual's page shows: a shop on two hosts, with troubles."""
    running = [
        running_row(
            10482117,
            544,
            GIB,
            kind="report.monthly",
            rss_bytes=921 * MIB,
            progress=b"0.82",
        ),
        running_row(10482301, 72, kind="thumbnail", slot="cpu/1", progress=b"0.4"),
        running_row(
            10482377,
            31.2,
            kind="thumbnail",
            slot="cpu/3",
            rss_bytes=398 * MIB,
            attempt=2,
            progress=b'{"page":17,"of":40}',
        ),
        running_row(
            10482380,
            12,
            GIB,
            kind="export",
            supervisor="run-2",
            slot="cpu/2",
            rss_bytes=155 * MIB,
            progress=b'"writing rows"',
        ),
    ]
    hosts = (
        Host(run_id="run-1", size=4, busy=3),
        Host(run_id="run-2", size=4, busy=1),
    )
    cpu = pool_row(
        running=running,
        hosts=hosts,
        ends_per_s=12.0,
        due=340,
        later=12,
        oldest_s=192.0,
        causes=(("slots", 0.9), ("memory", 0.1)),
    )
    io = pool_row(
        "io",
        16,
        9,
        ends_per_s=402.0,
        due=12_040,
        blocked=9632,
        later=88_000,
        oldest_s=8.0,
        causes=(("quota stripe", 0.8), ("slots", 0.2)),
    )
    mail = pool_row("mail", hosts=(), due=17, oldest_s=3720.0, causes=(("slots", 1.0),))
    deaths = [
        end_row(
            10482290,
            kind="thumbnail",
            attempt=1,
            state="pending",
            reason="killed at 512.3MiB, over its memory limit of 512MiB",
            finished_at_ms=NOW_MS - 2_000,
        ),
        end_row(
            10481111,
            kind="pay",
            attempt=5,
            outcome="failed",
            reason="raised VendorDown: no answer within 20s; failure 5 of 5",
            finished_at_ms=NOW_MS - 14_000,
        ),
        end_row(
            10480004,
            kind="scan",
            state="quarantined",
            outcome="crashed",
            reason="killed by SIGSEGV (Segmentation fault); crash 3 of 3",
            finished_at_ms=NOW_MS - 65_000,
        ),
    ]
    return glance(
        running,
        deaths,
        (cpu, io, mail),
        url="sqlite:////srv/shop/jobpool.db",
        alive=2,
        begun=9,
        dead=3,
        quarantined=1,
    )
