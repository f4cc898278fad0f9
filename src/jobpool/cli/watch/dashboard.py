"""`jobpool dashboard`: the store in a browser."""

from __future__ import annotations

import pwd
import signal
import sys
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

import click

from jobpool.cli.context import opened, own_sources
from jobpool.cli.exits import Exit
from jobpool.cli.flags import store_flags
from jobpool.cli.launch.alerts import watched
from jobpool.cli.output import console, print_line
from jobpool.core.config.load import alerts_of, client_settings, traces_of
from jobpool.core.config.readers import address
from jobpool.core.event_lines import human_line
from jobpool.errors import ConfigError
from jobpool.operations.principal import Role, local_principal

if TYPE_CHECKING:
    from jobpool.core.config.settings import Address, ClientSettings
    from jobpool.dashboard.access.proxies import Proxies
    from jobpool.store.protocol import Store

_LISTEN = "127.0.0.1:8300"
_ONCE = (
    "opens one browser, once; until then it holds, and then another is printed here. "
    "Ctrl-C ends the dashboard and its sessions"
)
_OPEN = "Ctrl-C ends it"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command()
@click.option(
    "--listen",
    default=_LISTEN,
    metavar="ADDRESS",
    show_default=True,
    help="Where it is served: an IP address and a port.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="Ask for a token. Lines of the file: WHO ROLE TOKEN; roles: viewer, operator, "
    "admin.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Believe a proxy at this address, or in this network, who asks. Repeatable.",
)
@click.option(
    "--proxy-user",
    metavar="NAME",
    help="The user that a proxy on this host runs as: everybody here has its address.",
)
@click.option(
    "--user-header",
    metavar="NAME",
    help="Where the proxy says who asks. Default: X-Forwarded-User.",
)
@click.option(
    "--role-header", metavar="NAME", help="Where the proxy says which role they have."
)
@click.option(
    "--role",
    metavar="ROLE",
    help="Of everybody for whom the proxy names none. Default: viewer.",
)
@store_flags
def dashboard(
    *,
    listen: str,
    token_file: str | None,
    proxies: tuple[str, ...],
    store: str | None,
    config: str | None,
    **said: str | None,
) -> None:
    """Show the store in a browser: what needs you, jobs and their deaths, and actions.

    It prints a link, which opens one browser; then it prints another. With --token-file
    or --proxy it can be served to other machines: encrypt the way there, for example by
    a proxy with TLS.
    """
    place = address(listen, "--listen")
    is_here = place.host == "localhost" or ip_address(place.host).is_loopback
    if not is_here and token_file is None and not proxies:
        raise ConfigError(
            f"--listen: {place} can be reached from elsewhere, and nothing would keep "
            f"others out; expected an address of this machine only, such as {_LISTEN}, "
            "or --token-file or --proxy; nothing was started"
        )
    if token_file is not None and proxies:
        raise click.UsageError("--token-file and --proxy exclude each other")
    if not proxies and any(said.values()):
        raise click.UsageError(
            "--proxy-user, --user-header, --role-header and --role need --proxy"
        )
    sources = own_sources(store, config)
    settings = client_settings(sources)
    try:
        from jobpool.dashboard.access.keys import Keys  # noqa: PLC0415 - an extra
        from jobpool.dashboard.access.peer import names_owners  # noqa: PLC0415
        from jobpool.dashboard.access.tokens import Tokens, read_tokens  # noqa: PLC0415
        from jobpool.dashboard.app import Dashboard  # noqa: PLC0415
        from jobpool.dashboard.serving import bound, serve  # noqa: PLC0415
    except ImportError as exc:
        raise ConfigError(
            "the dashboard needs starlette, uvicorn and jinja2: "
            "pip install 'jobpool[web]'"
        ) from exc
    tokens = None if token_file is None else read_tokens(token_file)
    behind = _proxies(proxies, **said) if proxies else None
    with opened(sources) as found:
        url = found.url
    if not names_owners():
        _warn_of_nobody(proxy_user=said["proxy_user"])
    listening, at = bound(place)
    keys = Keys(local_principal("jobpool dashboard"), partial(_tell, at), port=at.port)
    writer = partial(_opened, settings)
    application = Dashboard(
        behind or (keys if tokens is None else Tokens(tokens, port=at.port)),
        reader=partial(writer, reader=True),
        writer=writer,
        store_url=url,
        traces=traces_of(sources),
        hosts={*_LOOPBACK, place.host} if is_here and behind is None else None,
    )
    is_linked = behind is None and tokens is None
    begun = keys.begin if is_linked else partial(print_line, f"http://{at}/")
    if not is_linked and sys.stdout.isatty():
        begun = partial(_show, f"http://{at}/", _OPEN)
    rules = alerts_of(sources)
    # As Ctrl-C does: whatever is open is closed, and a turn of the watch is finished.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Exit.OK))
    with watched(settings, rules, lambda event: print_line(human_line(event))):
        serve(application, listening, begun=begun)


def _proxies(
    addresses: tuple[str, ...],
    *,
    proxy_user: str | None,
    user_header: str | None,
    role_header: str | None,
    role: str | None,
) -> Proxies:
    """Return whom to believe who asks.

    Raises:
        ConfigError: an address, a role or a user is none; nothing was started.
    """
    from jobpool.dashboard.access.peer import is_here  # noqa: PLC0415 - an extra
    from jobpool.dashboard.access.proxies import (  # noqa: PLC0415 - an extra
        USER_HEADER,
        Proxies,
        network,
    )
    from jobpool.dashboard.access.tokens import role_of  # noqa: PLC0415

    networks = [network(one) for one in addresses]
    own = [one for one in networks if one.num_addresses == 1]
    own = [one for one in own if is_here(str(one.network_address))]
    if proxy_user is None and (own or any(one.is_loopback for one in networks)):
        raise ConfigError(
            "--proxy: everybody on this host has its addresses, and could claim "
            "to be anybody; expected --proxy-user with the user that the proxy runs "
            "as; nothing was started"
        )
    return Proxies(
        networks=networks,
        uid=None if proxy_user is None else _uid(proxy_user),
        user_header=user_header or USER_HEADER,
        role_header=role_header,
        role=Role.VIEWER if role is None else role_of(role, "--role"),
    )


def _uid(name: str) -> int:
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError as exc:
        raise ConfigError(
            f"--proxy-user: this host has no user {name[:40]!r}; nothing was started"
        ) from exc


def _warn_of_nobody(*, proxy_user: str | None) -> None:
    """Say that sessions belong to nobody.

    Raises:
        ConfigError: a proxy is to be known by its user, and never would be; nothing
            was started.
    """
    if proxy_user is not None:
        raise ConfigError(
            "--proxy-user: this kernel does not tell who has opened a connection, so "
            "the proxy would never be believed; expected one on another host, or "
            "jobpool.integrations.dashboard in an application with a login; nothing "
            "was started"
        )
    click.echo(
        "warning: this kernel does not tell who has opened a connection, so sessions "
        "belong to whoever has their cookie, and browsers send that to every port of "
        "this host. That does not matter where nobody else has an account; else use "
        "jobpool.integrations.dashboard in an application with a login",
        err=True,
    )


def _tell(at: Address, key: str) -> None:
    """Print a link: for people on a terminal with what it is, else nothing but it."""
    link = f"http://{at}/enter?key={key}"
    if sys.stdout.isatty():
        _show(link, _ONCE)
    else:
        print_line(link)


def _show(link: str, hint: str) -> None:
    from rich.style import Style  # noqa: PLC0415 - only on terminals
    from rich.text import Text  # noqa: PLC0415 - likewise

    text = Text.assemble(
        ("Dashboard  ", "bold"),
        (link, Style(color="cyan", underline=True, link=link)),
        (f"\n           {hint}", "dim"),
    )
    console().print(text, soft_wrap=True)


def _opened(settings: ClientSettings, *, reader: bool = False) -> Store:
    from jobpool.store.opening import open_store  # noqa: PLC0415 - not for --help

    return open_store(
        settings.store, create=False, admission=settings.admission, reader=reader
    )
