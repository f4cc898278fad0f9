"""The dashboard within another application: as its documentation mounts it."""

import gc

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.testclient import TestClient

from jobpool.errors import ConfigError
from jobpool.integrations.dashboard import Principal, Role, dashboard
from jobpool.store.opening import open_store
from jobpool.store.records.operating import AuditFilter
from support.store.cli_store import dead, stored, url_of


class Users:
    """Authentication of an application: a header says who it is."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            scope["user"] = dict(scope["headers"]).get(b"x-user", b"").decode()
        await self.app(scope, receive, send)


def who_asks(request):
    name = request.scope["user"]
    if not name:
        return None
    role = Role.OPERATOR if name == "ada" else Role.VIEWER
    return Principal(who=name, role=role, origin="shop's admin")


@pytest.fixture
def ref(tmp_path):
    store = stored(tmp_path)
    ref = store.get(dead(store)).ref
    store.close()
    return ref


@pytest.fixture
def client(tmp_path, ref):
    mounted = dashboard(url_of(tmp_path), who_asks)
    shop = Starlette(
        routes=[Mount("/admin/jobs", mounted)], middleware=[Middleware(Users)]
    )
    with TestClient(shop, base_url="http://shop.example", follow_redirects=False) as it:
        yield it
    mounted.close()


def retry(client, ref, user, **headers):
    origin = {"Origin": "http://shop.example", "Sec-Fetch-Site": "same-origin"}
    headers = {**origin, "X-User": user, **headers}
    return client.post(f"/admin/jobs/jobs/{ref}/retry", headers=headers)


def test_the_application_says_who_sees_and_who_acts(client, ref, tmp_path):
    """What they do is in the audit trail with their name; so is what they may not."""
    assert client.get("/admin/jobs/").status_code == 401
    seen = client.get("/admin/jobs/", headers={"X-User": "bob"})
    assert seen.status_code == 200
    assert "bob, viewer" in seen.text
    assert retry(client, ref, "bob").status_code == 403
    foreign = retry(client, ref, "ada", Origin="http://evil.example")
    assert foreign.status_code == 403
    assert retry(client, ref, "ada").status_code in (200, 303)
    store = open_store(url_of(tmp_path))
    rows = [(row.who, row.action, row.origin) for row in store.audits(AuditFilter())]
    store.close()
    assert rows == [
        ("ada", "retry", "shop's admin"),
        ("bob", "refused", "shop's admin"),
    ]


def test_what_is_no_url_of_a_store_is_refused_at_once():
    with pytest.raises(ConfigError):
        dashboard("jobs.db", who_asks)


def test_a_store_may_be_made_after_the_application_has_started(tmp_path, caplog):
    """By the supervisor that it starts, for one; until then the pages say so.

    They do, and not the log with a traceback for each read.
    """
    gc.collect()  # what other tests have left is not meant
    caplog.clear()
    mounted = dashboard(url_of(tmp_path), who_asks)
    mounted._deadline_s = 30.0  # else a busy machine's pages may not know it yet
    shop = Starlette(routes=[Mount("/ops", mounted)], middleware=[Middleware(Users)])
    with TestClient(shop, base_url="http://shop.example") as client:
        for page in ("/ops/", "/ops/jobs", "/ops/kinds", "/ops/jobs/1-none"):
            seen = client.get(page, headers={"X-User": "ada"})
            assert "there is no store" in seen.text, page
        assert not list(tmp_path.iterdir())
        store = stored(tmp_path)
        ref = store.get(dead(store)).ref
        store.close()
        assert ref in client.get("/ops/jobs", headers={"X-User": "ada"}).text
    mounted.close()
    gc.collect()  # then asyncio complains
    assert not [record for record in caplog.records if record.name == "asyncio"]
