"""Real supervisors, children and a real store under a seeded nemesis; then the check.

Children, zygotes and supervisors are killed and stopped, the store is locked, filled,
cut off or killed, clocks jump, descriptors and pids run out. Children, producers and
the database each keep an account of their own. Then it is quiet, everything must
drain, and the accounts must agree: nothing lost, invented, settled twice or run side
by side, no job blamed for another's death, nothing left behind.
"""

import argparse
import contextlib
import faulthandler
import os
import subprocess
import sys

BEYOND_S_MAX = 600
"""A run may take so much longer than it is told to: starts, ends and the check."""
ALONE = "CHAOS_ALONE"
INIT = 'mount -t tmpfs none /dev/shm; "$@"; exit $?'
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def options_of(words):
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="of storm")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    parser.add_argument("--store", default="sqlite", choices=("sqlite", "postgresql"))
    parser.add_argument("--outage", type=float, default=0.0, help="seconds, before it")
    parser.add_argument("--calm", type=float, default=10.0, help="seconds, at first")
    parser.add_argument("--drain", type=float, default=120.0, help="seconds at most")
    parser.add_argument("--json", metavar="FILE", help="where the figures go, too")
    parser.add_argument("--keep", action="store_true", help="keep all accounts")
    return parser.parse_args(words)


def isolate():
    """Begin anew with mounts and pids of our own, if this machine lets us.

    Then a disk can be filled and pids can run out without harm to anybody else, and
    whatever happens, nothing outlives the run. A shell is the first process there: it
    reaps orphaned processes.
    """
    if ALONE in os.environ or os.geteuid() != 0:
        return
    with contextlib.suppress(FileNotFoundError):
        if not subprocess.run(
            [*UNSHARE, "true"], check=False, capture_output=True
        ).returncode:
            os.environ[ALONE] = "1"
            inner = [sys.executable, "-m", "chaos", *sys.argv[1:]]
            os.execvp(UNSHARE[0], [*UNSHARE, "bash", "-c", INIT, "chaos", *inner])


def main(words):
    """Play the run; return 0 if everything is as it must be."""
    options = options_of(words)
    isolate()
    from chaos import figures, play

    # The last resort: a run that hangs says where, and ends.
    planned_s = 60 * options.minutes + options.calm + options.outage + options.drain
    faulthandler.dump_traceback_later(planned_s + BEYOND_S_MAX, exit=True)
    values, reports = play.play(
        play.Options(
            store=options.store,
            seed=options.seed,
            storm_s=60 * options.minutes,
            calm_s=options.calm,
            outage_s=options.outage,
            drain_s=options.drain,
            is_alone=ALONE in os.environ,
            keep=options.keep,
        )
    )
    print(figures.page(values))
    if options.json:
        play.write(values, options.json)
    print(*reports, sep="\n")
    count = len(values["violations"])
    print(f"history check: {count} violations" if count else "history check: passed")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
