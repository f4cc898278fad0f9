"""Ways to find out who asks: links, tokens, proxies, the application around it."""

import os

import pytest

from jobpool.dashboard.access.host import Host
from jobpool.dashboard.access.keys import Keys
from jobpool.dashboard.access.peer import is_here, names_owners
from jobpool.dashboard.access.proxies import Proxies, network
from jobpool.dashboard.access.sessions import IDLE_S, SESSIONS_MAX
from jobpool.dashboard.access.tokens import Tokens, read_tokens
from jobpool.errors import ConfigError
from jobpool.operations.principal import Principal, Role
from support.browsing import OURS, Browser
from support.store.storing import ManualClock

ADA = Principal(who="ada", role=Role.OPERATOR, origin="a test")
TOKEN, OTHER = "t" * 32, "o" * 32
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def browse(opener, store):
    """Return browsers of the same store, each with its own cookies."""
    made = []

    def browse(access):
        made.append(Browser(opener, access))
        return made[-1]

    yield browse
    for one in made:
        one.close()


def written(folder, text, mode=0o600):
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def tokens(tmp_path, clock=None):
    text = f"# who may\n\nada operator {TOKEN}\nbob viewer {OTHER}\n"
    return Tokens(read_tokens(written(tmp_path, text)), port=8300, clock=clock)


def test_a_token_opens_a_session_and_is_in_no_page(browse, tmp_path):
    """It is asked for by a form, and exchanged for a cookie."""
    browser = browse(tokens(tmp_path))
    closed = browser.get("/")
    assert closed.status_code == 401
    assert 'name="token"' in closed.text
    wrong = browser.post("/enter", {"token": "x" * 32})
    assert (wrong.status_code, "No line" in wrong.text) == (401, True)
    entered = browser.post("/enter", {"token": TOKEN})
    assert entered.status_code == 303
    assert TOKEN not in entered.headers["Set-Cookie"]
    page = browser.get("/")
    assert page.status_code == 200
    assert "ada, operator" in page.text
    assert TOKEN not in page.text


def test_a_token_in_an_address_opens_nothing(browse, tmp_path):
    """It would stay in the history, and another page could lead somebody there."""
    browser = browse(tokens(tmp_path))
    answer = browser.get("/enter", params={"key": TOKEN})
    assert answer.status_code == 401
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_cookie_of_an_encrypted_way_is_sent_on_no_other(browse, tmp_path, scheme):
    """Also if it is a proxy before the dashboard who decrypts."""
    browser = browse(tokens(tmp_path))
    ours = OURS | {"Origin": OURS["Origin"].replace("http", scheme)}
    entered = browser.post("/enter", {"token": TOKEN}, headers=ours)
    assert entered.status_code == 303
    assert ("; Secure" in entered.headers["Set-Cookie"]) == (scheme == "https")


def test_a_program_names_its_token(browse, tmp_path):
    """In a header, without a session; a wrong one is not helped by a cookie."""
    browser = browse(tokens(tmp_path))
    assert browser.get("/", headers=BEARER).status_code == 200
    assert "Set-Cookie" not in browser.get("/", headers=BEARER).headers
    browser.post("/enter", {"token": TOKEN})
    for said in ("Bearer wrong", f"Basic {TOKEN}", TOKEN):
        answer = browser.get("/", headers={"Authorization": said})
        assert answer.status_code == 401


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("", 0o600, "has no token"),
        (f"ada operator {TOKEN}\n", 0o640, "chmod 600"),
        (f"ada operator {TOKEN}\n", 0o604, "chmod 600"),
        ("ada operator\n", 0o600, "line 1: 2 words"),
        ("ada operator short\n", 0o600, "at least 32"),
        (f"ada owner {TOKEN}\n", 0o600, "'owner' is not a role"),
        (f"ada admin {TOKEN}\nbob admin {TOKEN}\n", 0o600, "line 2"),
    ],
)
def test_a_token_file_that_is_wrong_is_refused(tmp_path, text, mode, said):
    """Its tokens are in no message."""
    with pytest.raises(ConfigError) as caught:
        read_tokens(written(tmp_path, text, mode))
    assert said in str(caught.value)
    assert "nothing was started" in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert "short" not in str(caught.value)


def test_a_token_file_that_is_missing_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tokens(str(tmp_path / "none"))


def test_a_session_ends_when_its_owner_leaves(browse, tmp_path):
    browser = browse(tokens(tmp_path))
    browser.post("/enter", {"token": TOKEN})
    cookie = dict(browser.client.cookies)
    assert browser.post("/leave", headers={}).status_code == 403
    assert browser.get("/").status_code == 200
    browser.post("/leave")
    browser.client.cookies.update(cookie)
    assert browser.get("/").status_code == 401


def test_a_session_ends_when_nobody_uses_it(browse, tmp_path):
    """Not before: each request keeps it."""
    clock = ManualClock()
    browser = browse(tokens(tmp_path, clock))
    browser.post("/enter", {"token": TOKEN})
    for _ in range(3):
        clock.advance(IDLE_S - 1)
        assert browser.get("/").status_code == 200
    clock.advance(IDLE_S + 1)
    assert browser.get("/").status_code == 401


def test_the_sessions_of_one_person_are_bounded(browse, tmp_path):
    """The one that was used longest ago gives way, and nobody else's."""
    clock = ManualClock()
    access = tokens(tmp_path, clock)
    bystander, first, other = (browse(access) for _ in range(3))
    bystander.post("/enter", {"token": TOKEN})
    clock.advance(1)
    first.post("/enter", {"token": OTHER})
    for _ in range(SESSIONS_MAX):
        clock.advance(1)
        other.post("/enter", {"token": OTHER})
    assert first.get("/").status_code == 401
    assert other.get("/").status_code == 200
    assert bystander.get("/").status_code == 200


def test_the_kernel_is_asked_whose_a_connection_is():
    """Of one of our own it is known whose that is."""
    assert names_owners()


@pytest.mark.parametrize(("are_owned", "status"), [(True, 401), (False, 303)])
def test_a_session_from_this_host_belongs_to_somebody(
    browse, monkeypatch, are_owned, status
):
    """Unless the kernel names no owners at all, which is said at the start.

    The link is not used up.
    """
    told = []
    keys = Keys(ADA, told.append, port=8300)
    keys.begin()
    browser = browse(keys)
    browser.client._transport.app = FromAddress(browser.dashboard, "127.0.0.1")
    sessions = "jobpool.dashboard.access.sessions"
    monkeypatch.setattr(f"{sessions}.names_owners", lambda: are_owned)
    assert browser.get(f"/enter?key={told[0]}").status_code == status
    assert len(told) == {401: 1, 303: 2}[status]


def test_a_link_that_is_only_looked_at_is_not_used_up(browse):
    """As programs do that show where a link leads."""
    told = []
    keys = Keys(ADA, told.append, port=8300)
    keys.begin()
    browser = browse(keys)
    assert browser.client.head(f"/enter?key={told[0]}").status_code == 401
    assert browser.get(f"/enter?key={told[0]}").status_code == 303


def test_the_page_of_a_used_link_says_so(browse):
    told = []
    keys = Keys(ADA, told.append, port=8300)
    keys.begin()
    browse(keys).get(f"/enter?key={told[0]}")
    late = browse(keys).get(f"/enter?key={told[0]}")
    assert late.status_code == 401
    assert "somebody else may have used it" in late.text


class FromAddress:
    """The dashboard, as if requests came from an address."""

    def __init__(self, application, host):
        self._application = application
        self._host = host

    async def __call__(self, scope, receive, send):
        scope = {**scope, "client": (self._host, 40_000)}
        await self._application(scope, receive, send)


def behind(**facts):
    usual = {
        "networks": [network("10.0.0.0/28")],
        "uid": None,
        "user_header": "X-Forwarded-User",
        "role_header": "X-Role",
        "role": Role.VIEWER,
    }
    return Proxies(**usual | facts)


def asked_from(browse, host, headers, **facts):
    browser = browse(behind(**facts))
    browser.client._transport.app = FromAddress(browser.dashboard, host)
    return browser.get("/", headers=headers)


@pytest.mark.parametrize(
    ("host", "headers", "seen"),
    [
        ("10.0.0.5", {"X-Forwarded-User": "ada"}, "ada, viewer"),
        ("::ffff:10.0.0.5", {"X-Forwarded-User": "ada"}, "ada, viewer"),
        ("10.0.0.5", {"X-Forwarded-User": "ada", "X-Role": "admin"}, "ada, admin"),
        ("10.0.0.5", {"X-Forwarded-User": "ada", "X-Role": "root"}, None),
        ("10.0.0.5", {"X-Forwarded-User": "ada", "X-Role": ""}, None),
        ("10.0.0.5", {"X-Forwarded-User": ""}, None),
        ("10.0.0.5", {}, None),
        (
            "10.0.0.5",
            [("X-Forwarded-User", "ada"), ("X-Forwarded-User", "bob")],
            None,
        ),
        ("10.0.0.99", {"X-Forwarded-User": "ada"}, None),
        ("127.0.0.1", {"X-Forwarded-User": "ada"}, None),
        ("testclient", {"X-Forwarded-User": "ada"}, None),
    ],
)
def test_only_a_named_proxy_is_believed(browse, host, headers, seen):
    """And only if what it says is one thing, and makes sense."""
    answer = asked_from(browse, host, headers)
    if seen is None:
        assert answer.status_code == 401
    else:
        assert answer.status_code == 200
        assert seen in answer.text


@pytest.mark.parametrize("networks", ["127.0.0.1", "0.0.0.0/0", "127.0.0.0/8"])
@pytest.mark.parametrize("uid", [None, 12_345])
def test_a_proxy_on_this_host_is_believed_only_as_its_user(browse, networks, uid):
    """Nobody who is not seen to be that user, whatever network has been named."""
    headers = {"X-Forwarded-User": "ada"}
    facts = {"networks": [network(networks)], "uid": uid}
    for host in ("127.0.0.1", "::ffff:127.0.0.1"):
        assert asked_from(browse, host, headers, **facts).status_code == 401


def test_who_asks_from_an_own_address_of_this_host_is_no_proxy_elsewhere(
    browse, monkeypatch
):
    """Everybody here has that address as well."""
    monkeypatch.setattr(
        "jobpool.dashboard.access.proxies.is_here", lambda host: host == "10.0.0.5"
    )
    headers = {"X-Forwarded-User": "ada"}
    assert asked_from(browse, "10.0.0.5", headers).status_code == 401
    assert asked_from(browse, "10.0.0.6", headers).status_code == 200


@pytest.mark.parametrize(
    ("address", "own"),
    [
        ("127.0.0.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("192.0.2.77", False),
        ("2001:db8::77", False),
        ("testclient", False),
    ],
)
def test_addresses_of_this_host_are_known(address, own):
    assert is_here(address) == own


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8300", 200),
        ("LOCALHOST", 200),
        ("[::1]:8300", 200),
        ("127.0.0.1.example.org:8300", 403),
        ("a_b.example.org:8300", 403),
        ("[", 403),
        ("a b", 403),
        ("127.0.0.1:8300:8300", 403),
        ("[127.0.0.1]x", 403),
        ("", 403),
    ],
)
def test_it_answers_to_its_own_names_only(opener, store, host, status):
    """Whatever a browser takes for a name, others' names lead nowhere."""
    browser = Browser(opener, hosts={"127.0.0.1", "localhost", "::1"})
    assert browser.get("/jobs", headers={"Host": host}).status_code == status
    browser.close()


@pytest.mark.parametrize("origin", ["http://[", "http://[x]", "null", "", "://"])
def test_an_origin_that_is_none_is_not_ours(browse, origin):
    answer = browse(None).post("/pause", headers={"Origin": origin})
    assert answer.status_code == 403


@pytest.mark.parametrize("text", ["10.0.0.1/28", "example.org", ""])
def test_what_is_no_address_is_no_proxy(text):
    with pytest.raises(ConfigError, match="nothing was started"):
        network(text)


def test_the_application_around_it_says_who_asks(browse):
    """By a function or a coroutine; None sees nothing."""

    async def waits(request):
        return ADA if request.headers.get("x-user") == "ada" else None

    def knows(request):
        return ADA if "x-user" in request.headers else None

    for who_asks in (waits, knows):
        browser = browse(Host(who_asks))
        assert browser.get("/").status_code == 401
        page = browser.get("/", headers={"X-User": "ada"})
        assert page.status_code == 200
        assert "ada, operator" in page.text
        assert "Leave" not in page.text


def test_below_a_prefix_every_link_stays_below_it(browse, opener):
    """As an application mounts it."""
    from starlette.applications import Starlette
    from starlette.routing import Mount
    from starlette.testclient import TestClient

    browser = browse(Host(lambda _request: ADA))
    around = Starlette(routes=[Mount("/admin/jobs", browser.dashboard)])
    with TestClient(around, base_url="http://127.0.0.1:8300") as client:
        page = client.get("/admin/jobs/")
        assert page.status_code == 200
        links = [part.split('"')[0] for part in page.text.split('href="')[1:]]
        links += [part.split('"')[0] for part in page.text.split('src="')[1:]]
        inside = [link for link in links if not link.startswith("#")]
        assert len(inside) > 5
        assert [one for one in inside if not one.startswith("/admin/jobs/")] == []
        (css,) = [link for link in inside if "/dashboard.css" in link]
        assert client.get(css).status_code == 200
        assert client.post("/admin/jobs/leave", headers=OURS).status_code == 401


def test_what_is_no_principal_is_no_answer(browse):
    browser = browse(Host(lambda _request: "ada"))
    with pytest.raises(TypeError, match="expected a Principal"):
        browser.get("/")


def test_the_kernel_names_the_user_of_a_connection():
    """Of one on this host, by either end's addresses; of nothing else."""
    import socket

    from starlette.requests import HTTPConnection

    from jobpool.dashboard.access.peer import uid_of

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        scope = {
            "type": "http",
            "client": client.getsockname(),
            "server": server.getsockname(),
        }
        assert uid_of(HTTPConnection(scope)) == os.geteuid()
        port = client.getsockname()[1]
        for wrong in (("10.0.0.1", port), ("testclient", port), ("127.0.0.9", port)):
            assert uid_of(HTTPConnection(scope | {"client": wrong})) is None
    assert uid_of(HTTPConnection(scope | {"client": None})) is None


def test_a_connection_that_its_process_has_closed_is_nobodys():
    """The kernel says it was root's; what listens at its port has not asked either."""
    import socket

    from starlette.requests import HTTPConnection

    from jobpool.dashboard.access.peer import uid_of

    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        scope = {
            "type": "http",
            "client": client.getsockname(),
            "server": server.getsockname(),
        }
        accepted, _ = server.accept()
        with accepted:
            client.close()
            assert uid_of(HTTPConnection(scope)) is None
        listening = scope | {"client": server.getsockname()}
        assert uid_of(HTTPConnection(listening)) is None
