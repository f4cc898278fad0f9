"""Compares cron expressions' ticks with those of Debian's cron, by two judges.

year     Each minute of a year in seven zones, by cron's loop written anew (one minute).
program  The program itself under a faked clock, for a day around each change of the
         clocks. It needs root, a C compiler, and Debian's package cron (four minutes).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from jobpool.core.rules.schedules.rule import Rule, between, check_rule
from support.schedules import debian

SHIM = Path(__file__).with_name("faked_clock.c")
# In a mount namespace of its own: the host's crontabs are neither read nor touched.
RUN = """
mount -t tmpfs none /var/spool/cron && mkdir -m 1730 /var/spool/cron/crontabs
mount -t tmpfs none /run && mount -t tmpfs none /etc/cron.d
: > "$PLACE/empty" && mount --bind "$PLACE/empty" /etc/crontab
umask 077 && printf '%s :\\n' "$LINE" > /var/spool/cron/crontabs/root
LD_PRELOAD="$PLACE/faked_clock.so" exec cron -f -L 1 3> "$PLACE/log"
"""
RAN = "(root) CMD (:)"
RUN_S_MAX = 120


def main() -> int:
    """Compare; return 0 only if all ticks are the same."""
    judges = {"year": of_a_year, "program": of_the_program}
    parser = argparse.ArgumentParser(
        prog="scripts/schedules",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=judges, action="append", metavar="JUDGE")
    parser.add_argument(
        "--record", action="store_true", help="keep what the program ran, for the tests"
    )
    given = parser.parse_args()
    if given.record:
        debian.record(of_the_program())
    wrong = total = 0
    for name in [] if given.record else given.only or judges:
        for zone, after_ms, until_ms, cron, judged in judges[name]():
            rule = check_rule(Rule(cron=cron, tz=zone))
            ours = list(between(rule, after_ms, until_ms))
            total += len(judged)
            if differ := sorted(set(ours) ^ set(judged)):
                wrong += len(differ)
                at = datetime.fromtimestamp(differ[0] / 1000, UTC)
                print(f"{name}: {cron!r} in {zone}: differs first at {at:%F %R} UTC")
        print(f"{name}: {total:,} ticks compared, {wrong:,} differ", flush=True)
    return 1 if wrong else 0


def of_a_year() -> Iterator[debian.Judged]:
    """Yield what cron's loop does in each zone in a year."""
    for zone in debian.ZONES:
        span = (debian.start_of(debian.YEAR), debian.start_of(debian.YEAR + 1))
        runs = debian.walk(debian.EXPRESSIONS, ZoneInfo(zone), *span)
        for cron, ran in zip(debian.EXPRESSIONS, runs, strict=True):
            yield (zone, *span, cron, ran)


def of_the_program() -> Iterator[debian.Judged]:
    """Yield what cron itself does around each change of the clocks."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("cron", "cc", "unshare"))):
        sys.exit(
            "program: it takes root, cc, unshare and Debian's cron (apt-get install "
            "cron); to do without: --only year"
        )
    with tempfile.TemporaryDirectory(prefix="jobpool-cron-") as place:
        made = Path(place, "faked_clock.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", made, SHIM], check=True)
        for zone in debian.ZONES:
            for span in debian.spans(zone):
                for cron in debian.EXPRESSIONS:
                    yield (zone, *span, cron, run(Path(place), zone, span, cron))


def run(place: Path, zone: str, span: tuple[int, int], cron: str) -> list[int]:
    """Return the minutes at which cron starts a job."""
    after_ms, until_ms = span
    subprocess.run(
        ["unshare", "-m", "sh", "-e", "-c", RUN],
        check=True,
        timeout=RUN_S_MAX,
        env={
            "PATH": os.environ["PATH"],
            "PLACE": str(place),
            "LINE": cron,
            "TZ": zone,
            "FAKED_FROM": str(after_ms // 1000),
            "FAKED_UNTIL": str(until_ms // 1000 + 30),
        },
    )
    lines = (place / "log").read_text().splitlines()
    seconds = [int(line.split()[0]) for line in lines if line.endswith(RAN)]
    return sorted({second // 60 * debian.MINUTE_MS for second in seconds})


if __name__ == "__main__":
    sys.exit(main())
