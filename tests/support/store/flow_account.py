"""A plain account of a flow: how its steps have ended, and what may begin.

It knows nothing of notes, and is told nothing but the ends of members: it derives from
them, each time anew, what has become of each step.
"""

from jobpool.core.jobs.flow import When


class Account:
    """What is known of a flow: how its members have ended.

    Args:
        flow: as it was stored.
        members: how many each step has.
    """

    def __init__(self, flow, members):
        self.flow = flow
        self.members = members
        """They grow by what members add."""
        self._stored = (*members,)
        self.ends = {one.number: {} for one in flow.steps}
        """Of each step: whether they succeeded, of its members that have ended."""
        self.left = {}
        """Outcomes of steps that a retry of some members has left as they were."""

    def outcome(self, number):
        """Return how a step has ended, a key of `SEEN`; None: it has not."""
        if number in self.left:
            return self.left[number]
        one = self.flow.steps[number]
        before = [(self.outcome(n), when) for n, when in one.after]
        if any(outcome is None for outcome, _ in before):
            return None
        missed = [outcome for outcome, when in before if not _holds(outcome, when)]
        if missed:
            has_failed = any(_has_failed(outcome) for outcome in missed)
            return "skipped: failed" if has_failed else "skipped"
        if len(self.ends[number]) < self.members[number]:
            return None
        return "succeeded" if all(self.ends[number].values()) else "failed"

    def may_begin(self, number):
        """Say whether a plain step's members may have begun."""
        one = self.flow.steps[number]
        outcomes = [(self.outcome(n), when) for n, when in one.after]
        return all(outcome and _holds(outcome, when) for outcome, when in outcomes)

    def plain(self):
        """Return the outcomes of all plain steps."""
        steps = self.flow.steps
        return [self.outcome(one.number) for one in steps if one.hook is None]

    def anew(self):
        """Return the plain steps that a retry begins anew; numbers grow along edges.

        They are those that have failed or that were never to end, since the whole flow
        was ending; and whatever comes after them.
        """
        found = []
        for one in self.flow.steps:
            is_after = any(number in found for number, _ in one.after)
            is_bad = one.hook is None and self.outcome(one.number) in {None, "failed"}
            if is_bad or is_after:
                found.append(one.number)
        return found

    def retry(self):
        """Begin the next generation; return the members that are to run again.

        Of a step that has failed, those that succeeded stay as they are, and the others
        run again. A step after it has new members in place of those that it was stored
        with, and so has a hook: whatever those had added, they may add again.
        """
        anew, again = self.anew(), set()
        for one in self.flow.steps:
            ends = self.ends[one.number]
            if one.hook is not None or any(number in anew for number, _ in one.after):
                ends.clear()
                self.members[one.number] = self._stored[one.number]
            elif one.number in anew:
                again |= {job for job, is_good in ends.items() if not is_good}
                self.ends[one.number] = dict.fromkeys(ends.keys() - again, True)
        return again


def _has_failed(outcome):
    return outcome in ("failed", "skipped: failed")


def _holds(outcome, when):
    if when is When.FINISHED:
        return True
    return _has_failed(outcome) if when is When.FAILED else outcome == "succeeded"


SEEN = {
    "succeeded": ("done", False),
    "failed": ("done", True),
    "skipped": ("skipped", False),
    "skipped: failed": ("skipped", True),
}
