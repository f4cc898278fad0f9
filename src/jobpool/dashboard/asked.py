"""One request: who asks, what a screen reads and shows, what an action does."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from jobpool.core.config.settings import TraceLinks
from jobpool.core.jobs.job import JobState
from jobpool.dashboard.bulks import Bulks
from jobpool.dashboard.live.live import Live
from jobpool.dashboard.made import Made
from jobpool.dashboard.reading import Read, Reading, Unknown
from jobpool.dashboard.rendering import fingerprint
from jobpool.errors import UsageError
from jobpool.operations.action import Action, Done
from jobpool.operations.operate import LEAST_ROLE, operate
from jobpool.operations.principal import Principal, Role
from jobpool.store.protocol import Store

T = TypeVar("T")

FORM_MAX_BYTES = 2**20
_FIELDS_MAX = 1000
_FORM_S = 30.0
_SEE_OTHER = 303
_UNFINISHED = (
    JobState.PENDING,
    JobState.WAITING,
    JobState.RUNNABLE,
    JobState.LEASED,
)


class NotKnown(UsageError):
    """An address names what this store does not know: the page says so."""


@dataclass(frozen=True)
class Place:
    """A page that the navigation leads to."""

    name: str
    """Of its route."""
    title: str
    group: str
    """The heading that it stands below; "": none."""


@dataclass(frozen=True)
class Served:
    """What all requests share."""

    reading: Reading
    """Reads for pages."""
    writing: Reading
    """Changes the store: on connections that may."""
    templates: Environment
    paths: Mapping[str, str]
    """Of the routes, by name, with parameters in braces."""
    places: tuple[Place, ...]
    has_sessions: bool
    """Who asks can leave."""
    live: Live
    """What all pages share."""
    made: Made
    """The newest pages."""
    bulks: Bulks
    """What is done to many jobs, and goes on while nobody looks."""
    traces: TraceLinks
    """Where people look at the traces of jobs."""
    store_name: str
    """Of the store, as shown: no password."""


class Asked:
    """One request, answered by a screen or an action.

    Attributes:
        request: Starlette's.
        principal: who asks.
        served: what all requests share.
        here: the name of the place that the page belongs to.
    """

    def __init__(
        self, request: Request, principal: Principal | None, served: Served, here: str
    ) -> None:
        self.request = request
        self.principal = principal
        self.served = served
        self.here = here

    @property
    def reading(self) -> Reading:
        """Reads the store; `reading.read` has a deadline."""
        return self.served.reading

    @cached_property
    def query(self) -> dict[str, str]:
        """The parameters behind the question mark; the last of each name."""
        return dict(self.request.query_params)

    async def read_alike(self, name: Hashable, read: Read[T]) -> T | Unknown:
        """Read what others ask for as well; nothing is older than the last change.

        Args:
            name: of what is read: whoever gives the same name reads the same.
            read: reads it.
        """
        return await self.reading.read_alike((self.served.live.version, name), read)

    def part(self, name: str) -> str:
        """Return a part of the path, such as a job's ref."""
        return str(self.request.path_params[name])

    def url(self, name: str, /, **parameters: Any) -> str:
        """Return the path of a page of ours, below wherever the dashboard is mounted.

        Args:
            name: of the route.
            parameters: those that stand in its path; others follow a question mark,
                None: not at all.

        Raises:
            KeyError: there is no such route.
        """
        path = self.served.paths[name]
        asked = {k: v for k, v in parameters.items() if v is not None}
        for key in [key for key in asked if f"{{{key}}}" in path]:
            path = path.replace(f"{{{key}}}", quote(str(asked.pop(key)), safe=""))
        return self._root + path + ("?" + urlencode(asked) if asked else "")

    def has(self, name: str) -> bool:
        """Say whether there is a page of a name."""
        return name in self.served.paths

    def static(self, name: str) -> str:
        """Return the path of a static file; it changes whenever the file does."""
        return f"{self._root}/static/{name}?v={fingerprint(name)}"

    def may(self, action: type[Action]) -> bool:
        """Say whether a button for an action is shown; the operations decide."""
        return self.has_role(LEAST_ROLE[action])

    def has_role(self, role: Role) -> bool:
        """Say whether who asks has at least a role."""
        return self.principal is not None and self.principal.role >= role

    async def form(self) -> dict[str, str]:
        """Return a form's fields; the last of each name.

        Raises:
            UsageError: it is too large, too slow, or no form of ours; nothing was
                changed.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(_FORM_S):
                async for chunk in self.request.stream():
                    body += chunk
                    if len(body) > FORM_MAX_BYTES:
                        raise UsageError(
                            f"the form has more than {FORM_MAX_BYTES:,} bytes; nothing "
                            "was changed"
                        )
        except TimeoutError as exc:
            raise UsageError(
                f"the form did not come whole within {_FORM_S:g} s; nothing was changed"
            ) from exc
        try:
            fields = parse_qsl(
                body.decode(),
                keep_blank_values=True,
                max_num_fields=_FIELDS_MAX,
                errors="strict",
            )
        except ValueError as exc:
            raise UsageError(
                f"the form cannot be read ({exc}); nothing was changed"
            ) from exc
        return dict(fields)

    async def operate(self, action: Action) -> Done:
        """Carry out an action as who asks, through the operations.

        Raises:
            Forbidden: their role may not; nothing was changed.
            UsageError: it makes no sense; nothing was changed.
            StoreError: the store could not be changed; what was done before stays.
        """
        principal = self.principal
        if principal is None:
            raise RuntimeError("an action without a principal")

        def carry_out(store: Store) -> Done:
            return operate(store, principal, action)

        try:
            return await self.served.writing.read_at_length(carry_out)
        finally:
            self.served.live.expire()

    def page(
        self,
        template: str,
        /,
        *,
        status_code: int = 200,
        basis: tuple[object, ...] = (),
        **values: Any,
    ) -> Response:
        """Return a page.

        Args:
            template: its file.
            status_code: of the answer.
            basis: what was read, if all that it shows follows from that, from its
                address and from who asks: then it is not made again of the same.
            values: what the template shows.
        """
        numbers = self._numbers()

        def make() -> str:
            return self.served.templates.get_template(template).render(
                asked=self,
                url=self.url,
                has=self.has,
                static=self.static,
                may=self.may,
                numbers=numbers,
                **values,
            )

        whose = (str(self.request.url), self._root, self.principal, *numbers.items())
        text = self.served.made.text(whose, basis, make)
        return HTMLResponse(text, status_code)

    def go(self, name: str, /, **parameters: Any) -> Response:
        """Return an answer that leads to another page, after an action."""
        return RedirectResponse(self.url(name, **parameters), _SEE_OTHER)

    def _numbers(self) -> dict[str, tuple[int, str]]:
        """Return what stands beside places of the navigation, and its tone."""
        backlog = None if self.principal is None else self.served.live.numbers()
        if backlog is None:
            return {}
        dead = backlog.jobs(JobState.DEAD)
        quarantined = backlog.jobs(JobState.QUARANTINED)
        wrong = len(backlog.incidents)
        return {
            **({"incidents": (wrong, "bad")} if wrong else {}),
            "jobs": (backlog.jobs(*_UNFINISHED), ""),
            "dead": (dead, "bad" if dead else ""),
            "quarantine": (quarantined, "aside" if quarantined else ""),
            "flows": (backlog.unfinished_flows, ""),
        }

    @property
    def _root(self) -> str:
        return str(self.request.scope.get("root_path", "")).rstrip("/")
