"""The log of `jobpool dev`: each page of it begins with what is missing."""

from jobpool.cli.launch.dev import Loud
from jobpool.core.events.event import Level
from jobpool.core.events.figures import AttemptsSucceeded
from jobpool.core.events.supervisor import Alarm, IsolationReduced


class Log:
    """An observer that keeps what it is told, from a level on."""

    def __init__(self):
        self.events = []

    def observe(self, event):
        self.events.append(event)

    def hears(self, kind):
        return kind.level >= Level.INFO


def test_the_warning_is_before_each_page_of_what_is_written():
    log = Log()
    loud = Loud(log, 3)
    unheard = AttemptsSucceeded(
        at_ms=0,
        kind="",
        pool="",
        durations_s=(),
        waits_s=(),
        peaks_bytes=(),
        attempts=(),
    )
    for n in range(7):
        loud.observe(Alarm(at_ms=n, text="x"))
        loud.observe(unheard)
    heard = log.events
    assert unheard not in heard
    places = [n for n, one in enumerate(heard) if isinstance(one, IsolationReduced)]
    assert places == [0, 4, 8]
    assert not loud.hears(AttemptsSucceeded)
