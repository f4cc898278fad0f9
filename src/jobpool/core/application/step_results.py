"""Results of a flow's members, as handlers read them: page by page, and anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from jobpool.errors import JobErased

R_co = TypeVar("R_co", covariant=True)
PAGE_ROWS_MAX = 1000
"""Most results that are read at once."""
PAGE_BYTES_MAX = 2**20
"""A page of a handler ends with the result that reaches this."""


class Member(NamedTuple):
    """A job of a flow."""

    id: int
    kind: str


class MemberResult(NamedTuple):
    """The result of a member that has succeeded."""

    job_id: int
    number: int
    """Its step's, within its flow."""
    kind: str
    result: bytes | None
    """As JSON; None: null."""
    codec: str | None = None
    """The one that it is encoded with; None: it is plain, or decoded already."""
    is_erased: bool = False
    """There was a result, which was erased."""

    @property
    def member(self) -> Member:
        """The job."""
        return Member(self.job_id, self.kind)


class WantedResults(NamedTuple):
    """Which results of its flow a running job asks for."""

    numbers: tuple[int, ...] | None
    """Of which steps; None: of all before its own."""
    after_id: int
    """Only of jobs with higher ids."""


Page = Callable[[int], Sequence[MemberResult]]
"""Returns results, in the order of their jobs' ids, after that of a job; some, unless
there are none left. It may raise whatever reading them may."""


class ReadsResults(Protocol[R_co]):
    """A handler, as far as its results are concerned."""

    @property
    def kinds(self) -> frozenset[str]:
        """Its kind, and those that it had before."""
        ...

    def decode_result(self, encoded: bytes | None, /) -> R_co:
        """Return a stored result as the handler has returned it."""
        ...


class StepResults(Generic[R_co]):
    """Results, in the order in which their jobs were added.

    Each loop over it reads them anew, so that it can be begun again, and holds one page
    of them at a time.

    Args:
        page: reads them.
        value: what a loop gets for one.
        kinds: only those of jobs of these kinds; None: all.
    """

    def __init__(
        self,
        page: Page,
        value: Callable[[MemberResult], R_co],
        kinds: frozenset[str] | None = None,
    ) -> None:
        self._page = page
        self._value = value
        self._kinds = kinds

    def __iter__(self) -> Iterator[R_co]:
        """Read them from the first one on; errors as for reading a job.

        Raises:
            JobErased: one of them was erased; nobody is to take it for null.
        """
        after_id = 0
        while rows := self._page(after_id):
            for row in rows:
                if self._kinds is None or row.kind in self._kinds:
                    if row.is_erased:
                        raise JobErased(
                            f"the result of job {row.job_id} ({row.kind}) was erased"
                        )
                    yield self._value(row)
            after_id = rows[-1].job_id
