"""A thread that watches or works until it is told to end, and hides no error."""

import threading

FINISH_S_MAX = 120.0
"""The work at hand may be a call to a store that is only just coming back."""


class Witness(threading.Thread):
    """A thread that works until `finish`, which raises what it died of."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name or type(self).__name__.lower(), daemon=True)
        self._ends = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        """Work."""
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - `finish` raises it
            self._error = error

    def work(self) -> None:
        """Go on until `_ends` is set."""
        raise NotImplementedError

    def finish(self) -> None:
        """Let the work at hand be done, and end.

        Raises:
            TimeoutError: it is not done, after far longer than it should take.
        """
        self._ends.set()
        self.join(FINISH_S_MAX)
        if self.is_alive():
            raise TimeoutError(f"{self.name} still works after {FINISH_S_MAX:g} s")
        if self._error is not None:
            raise self._error
