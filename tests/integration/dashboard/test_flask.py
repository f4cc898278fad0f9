"""The dashboard in a Flask application behind its login, on a real WSGI server."""

import http.client
import io
import re
import threading
from contextlib import closing
from functools import partial
from http import HTTPStatus

import pytest
from flask import Flask, Request, redirect, request, session, url_for
from werkzeug.serving import make_server

from jobpool.dashboard.app import Dashboard
from jobpool.dashboard.asked import FORM_MAX_BYTES
from jobpool.errors import ConfigError
from jobpool.integrations.flask import Principal, Role, dashboard
from jobpool.store.opening import open_store
from jobpool.store.records.operating import AuditFilter
from support.store.cli_store import enqueue, stored, url_of

PATIENCE_S = 30
OURS = {"Sec-Fetch-Site": "same-origin"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ANN = Principal(who="ann", role=Role.OPERATOR, origin="the shop")
ROLES = {"ann": Role.OPERATOR, "eve": Role.VIEWER}


@pytest.fixture(scope="module", autouse=True)
def _patience():
    """A page waits for what it shows, however busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patient = partial(Dashboard, deadline_s=PATIENCE_S)
        patch.setattr("jobpool.integrations.dashboard.Dashboard", patient)
        yield


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    with closing(stored(folder)) as store:
        enqueue(store, 3)
    return url_of(folder)


@pytest.fixture(scope="module")
def shop(url):
    """A shop with a login, whose dashboard is below /office/jobs."""
    app = Flask("shop")
    app.secret_key = "of the test"

    @app.post("/login")
    def login():
        session["name"] = request.form["name"]
        return "welcome"

    def who_asks():
        name = session.get("name")
        if name is None:
            return redirect(url_for("login"))
        if name not in ROLES:
            return None
        return Principal(who=name, role=ROLES[name], origin="the shop")

    app.register_blueprint(dashboard(url, who_asks), url_prefix="/office/jobs")
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class Browser:
    """Asks with the cookie that it was given."""

    def __init__(self, place, name=None):
        self.place, self.cookie = place, ""
        if name is not None:
            answer, _ = self.ask("POST", "/login", f"name={name}", **FORM)
            self.cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(self.place, timeout=PATIENCE_S)
        connection.request(method, path, body, {"Cookie": self.cookie, **headers})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def get(self, path=""):
        return self.ask("GET", f"/office/jobs/{path}")

    def ref_of(self, job_id):
        """Return what the address of a job's page has, as the list of jobs says."""
        return re.search(rf'/office/jobs/jobs/({job_id}-\w+)"', self.get("jobs")[1])[1]

    def cancel(self, job_id, **headers):
        path = f"/office/jobs/jobs/{self.ref_of(job_id)}/cancel"
        return self.ask("POST", path, "note=not+today", **FORM, **headers)[0].status


def test_who_has_not_logged_in_is_led_to_the_login(shop):
    """As the application says; and somebody else of it sees nothing."""
    for path in ("", "jobs", "live"):
        answer, _ = Browser(shop).get(path)
        assert (answer.status, answer.headers["Location"]) == (302, "/login")
    answer, text = Browser(shop, "bob").get("jobs")
    assert answer.status == HTTPStatus.UNAUTHORIZED
    assert "thumbnail" not in text


def test_all_of_its_links_and_files_are_below_its_place(shop):
    browser = Browser(shop, "eve")
    for path in ("", "jobs", f"jobs/{browser.ref_of(1)}"):
        answer, text = browser.get(path)
        assert answer.status == 200
        targets = re.findall(r' (?:href|src|action)="([^"]*)"', text)
        others = [
            one for one in targets if not one.startswith(("/office/jobs/", "#", "?"))
        ]
        assert others == []
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    style = next(one for one in targets if ".css" in one)
    answer, text = browser.ask("GET", style)
    assert (answer.status, answer.headers["Content-Type"].partition(";")[0]) == (
        200,
        "text/css",
    )
    assert browser.get("nothing")[0].status == 404


def test_what_is_done_there_is_by_role_and_in_the_audit_trail(shop, url):
    assert Browser(shop, "eve").cancel(1, **OURS) == 403
    assert Browser(shop, "ann").cancel(1, **OURS) == 303
    with closing(open_store(url)) as store:
        states = [store.get(number).state for number in (1, 2)]
        assert states == ["canceled", "runnable"]
        done, refused = store.audits(AuditFilter())
        assert (done.who, done.action, done.origin) == ("ann", "cancel", "the shop")
        assert (refused.who, refused.action) == ("eve", "refused")


def test_a_form_of_another_site_changes_nothing(shop, url):
    """Though the browser sends the cookie with it."""
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert Browser(shop, "ann").cancel(3, **foreign) == 403
    with closing(open_store(url)) as store:
        assert store.get(3).state == "runnable"


def test_of_a_form_that_is_too_long_no_more_is_read_than_shows_that(url):
    """Nothing of what somebody sends who may see nothing: Flask limits no body."""
    app, known = Flask("shop"), []
    app.register_blueprint(dashboard(url, lambda: next(iter(known), None)))
    whole = b"note=" + b"a" * 3 * FORM_MAX_BYTES
    for status, most in ((401, 0), (400, FORM_MAX_BYTES + 1)):
        sent = io.BytesIO(whole)
        answer = app.test_client().post(
            "/bulk/cancel", input_stream=sent, content_length=len(whole), headers=OURS
        )
        assert (answer.status_code, sent.tell()) == (status, most)
        known.append(ANN)
    assert f"more than {FORM_MAX_BYTES:,} bytes" in answer.text


@pytest.mark.parametrize("read", [Request.get_data, lambda one: one.form["note"]])
def test_an_application_may_have_read_the_form_before(url, read):
    """As those do that log what was sent, or look for a token in all forms."""
    app = Flask("shop")
    app.register_blueprint(dashboard(url, lambda: ANN))

    @app.before_request
    def look():
        read(request)

    form = {"note": "not yet", "choice": "state=\u00fc"}
    answer = app.test_client().post("/bulk/cancel", data=form, headers=OURS)
    assert "there is no state &#39;\u00fc&#39;" in answer.text


def test_an_open_page_holds_no_worker(shop):
    answer, _ = Browser(shop, "ann").get("live")
    assert answer.status == HTTPStatus.NO_CONTENT


def test_a_store_that_is_not_there_is_said_so(tmp_path):
    app = Flask("shop")
    ann = Principal(who="ann", role=Role.VIEWER, origin="the shop")
    url = f"sqlite:///{tmp_path}/none.db"
    app.register_blueprint(dashboard(url, lambda: ann), url_prefix="/jobs")
    answer = app.test_client().get("/jobs/jobs")
    assert "none.db" in answer.text
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("url", "link"), [("mysql://x", None), ("sqlite:///x.db", "https://tempo/")]
)
def test_what_cannot_be_meant_is_refused_where_it_is_written(url, link):
    with pytest.raises(ConfigError):
        dashboard(url, lambda: None, trace_link=link)
