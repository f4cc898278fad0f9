"""Whether a process tree is over a limit, without what it shares or maps from files.

Theory of operation. Resident memory counts shared pages once for each process, and
mapped files as well: no child is killed for it. The cheapest measurement comes first.

The sum of each process's memory that is not from files is an upper bound. A lower bound
is the root's own anonymous memory plus what the others have gained since they were
first seen: none of that is shared with processes that existed before. What was swapped
in is not counted, since it may be shared.

If the limit is between the two, the proportional shares are read. They are exact, but
the kernel walks all mappings, and waits for whatever is changing them: a handler can
make it take as long as it likes. So a round that takes long is given up, and repeated
in full only after a pause. A process that has very much mapped is measured last, less
often still, and only if it matters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from time import monotonic
from typing import NamedTuple

from jobpool.sandbox.metering.sampling import CostLimiter
from jobpool.sandbox.metering.tree_memory import TreeMemory
from jobpool.sandbox.system.procfs import kib_bytes, read, resident_bytes

HEAVY_BYTES = 4 * 2**30
"""For so much resident memory the kernel needs tens of milliseconds."""
CLAIMS_EXPENSIVE_S = 0.0005
"""A tree that shares much is measured again and again: it must not take all time."""
SHARES_EXPENSIVE_S = 0.002
"""A round that takes longer, waiting included, is not repeated at once."""
ROUND_S = 0.02
"""A round that takes longer is given up, unless the one before it was."""
_SHARE = (b"Pss_Anon:", b"Pss_Shmem:")


class Claim(NamedTuple):
    """A process's memory, shared with others or not."""

    anon_bytes: int
    swapped_bytes: int
    shared_bytes: int
    """Memory that is mapped as shared."""

    @property
    def resident_bytes(self) -> int:
        """The most that it can have in memory."""
        return self.anon_bytes + self.shared_bytes


class Confirmation:
    """Confirms the memory figure of one child's tree.

    Args:
        tree: its processes.
    """

    def __init__(self, tree: TreeMemory) -> None:
        self._tree = tree
        self._cheap = CostLimiter(CLAIMS_EXPENSIVE_S)
        self._light = CostLimiter(SHARES_EXPENSIVE_S, monotonic)
        self._heavy = CostLimiter(SHARES_EXPENSIVE_S, monotonic)
        self._given_up = False
        """Whether the last round was given up."""
        self._first: dict[int, Claim] = {}
        """By descendant: its smallest figures so far."""
        self._claimed_bytes = self._found_bytes = 0
        """As of the last exact measurement."""

    def forget_costs(self) -> None:
        """Another attempt begins: measuring it may cost less."""
        for cost in (self._cheap, self._light, self._heavy):
            cost.forget()

    def measure(self, limit_bytes: int, now_s: float) -> int:
        """Measure the tree against a limit.

        Args:
            limit_bytes: measuring ends once it is certain on which side the tree is.
            now_s: monotonic time.

        Returns:
            Bytes; more than the limit only if the tree certainly has more. 0: it is
            too early to repeat an expensive measurement.
        """
        if not self._cheap.is_due(now_s, near=True):
            return 0
        self._cheap.begin()
        claims = self._claims()
        least = self._least(claims)
        self._cheap.end(now_s)
        most = sum(claim.resident_bytes for claim in claims.values())
        if most <= limit_bytes or len(claims) == 1:
            return most
        if least > limit_bytes:
            return least
        # It can be over the limit only if the claims grew by more than what was free.
        near = most - self._claimed_bytes >= limit_bytes - self._found_bytes
        if not self._light.is_due(now_s, near=near):
            return 0
        heavy = {pid for pid in claims if resident_bytes(pid) > HEAVY_BYTES}
        self._light.begin()
        until_s = float("inf") if self._given_up else monotonic() + ROUND_S
        found, is_whole = _shares(claims, claims.keys() - heavy, limit_bytes, until_s)
        self._given_up = not is_whole
        self._light.end(now_s)
        open_bytes = sum(claims[pid].resident_bytes for pid in heavy)
        is_open = is_whole and found <= limit_bytes < found + open_bytes
        if is_open and self._heavy.is_due(now_s):
            self._heavy.begin()
            found += _shares(claims, heavy, limit_bytes - found)[0]
            self._heavy.end(now_s)
        self._claimed_bytes, self._found_bytes = most, found if is_whole else 0
        return found

    def _claims(self) -> dict[int, Claim]:
        """Read each process's memory, without processes that have left the tree."""
        root = self._tree.root
        claims = {root: _claim(read(f"/proc/{root}/status"))}
        for pid in self._tree.below:
            status = read(f"/proc/{pid}/status")
            _before, _label, rest = status.partition(b"\nPPid:")
            if rest and int(rest.split(None, 1)[0]) in claims:
                claims[pid] = _claim(status)
        return claims

    def _least(self, claims: Mapping[int, Claim]) -> int:
        """Return the least that the processes can have together."""
        first = self._first
        total = claims[self._tree.root].anon_bytes
        self._first = {}
        for pid, claim in claims.items():
            if pid != self._tree.root:
                before = first.get(pid, claim)
                self._first[pid] = min(before, claim)
                swappable = claim.swapped_bytes - before.swapped_bytes
                grown = claim.anon_bytes - before.anon_bytes
                total += max(0, min(grown, grown + swappable))
        return total


def _claim(status: bytes) -> Claim:
    labels = b"RssAnon:", b"VmSwap:", b"RssShmem:"
    return Claim(*(kib_bytes(status, (label,)) for label in labels))


def _shares(
    claims: Mapping[int, Claim],
    pids: Collection[int],
    limit_bytes: int,
    until_s: float = float("inf"),
) -> tuple[int, bool]:
    """Add up the proportional shares of some processes.

    Args:
        claims: of all processes.
        pids: the processes to measure.
        limit_bytes: the sum may end above it.
        until_s: monotonic time; after it no other process is measured.

    Returns:
        Bytes, and whether they cover all processes or exceed the limit.
    """
    total = 0
    for pid in sorted(pids, key=claims.__getitem__, reverse=True):
        if monotonic() > until_s:
            return total, False
        try:
            total += kib_bytes(read(f"/proc/{pid}/smaps_rollup"), _SHARE)
        except PermissionError:
            # It made itself unreadable (PR_SET_DUMPABLE): count it in full.
            total += claims[pid].resident_bytes
        if total > limit_bytes:
            break
    return total, True
