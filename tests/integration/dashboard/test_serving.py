"""`jobpool dashboard` as a process."""

import http.client
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from jobpool.cli.root import cli
from support.site.terminal import Screen
from support.store.cli_store import stored, url_of
from support.waiting import wait_until

PATIENCE_S = 30
NOBODY = 65_534
EVERYWHERE = "0.0.0.0"  # noqa: S104 - that is what the test is about


@contextmanager
def served(folder, *more):
    """Start it; yield the process and its first link."""
    words = ("dashboard", "--store", url_of(folder))
    words += more or ("--listen", "127.0.0.1:0")
    with subprocess.Popen(
        [sys.executable, "-m", "jobpool", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def ask(link, path=None, cookie="", **headers):
    to = urlsplit(link)
    connection = http.client.HTTPConnection(to.netloc, timeout=PATIENCE_S)
    connection.request(
        "GET", path or f"{to.path}?{to.query}", headers={"Cookie": cookie, **headers}
    )
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def test_its_link_opens_it_and_another_is_printed(tmp_path):
    """It ends when it is told to, and closes what it has open."""
    stored(tmp_path).close()
    with served(tmp_path) as (process, link):
        closed, _ = ask(link, "/")
        assert closed.status == 401
        entered, _ = ask(link)
        assert entered.status == 303
        cookie = entered.headers["Set-Cookie"].partition(";")[0]
        page, body = ask(link, "/", cookie)
        assert page.status == 200
        assert "<h1>Overview</h1>" in body
        assert "Server" not in page.headers
        assert process.stdout.readline().strip() not in ("", link)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_on_a_terminal_the_link_is_explained(tmp_path):
    """What it is, and how long it holds; what is no terminal has the link alone."""
    stored(tmp_path).close()
    words = f"dashboard --store {url_of(tmp_path)} --listen 127.0.0.1:0"
    screen = Screen(tmp_path, words)
    wait_until(lambda: "its sessions" in screen.read(), PATIENCE_S, "the link")
    plain = re.sub(r"\x1b(\][^\x1b]*\x1b\\|\[[\d;]*m)", "", screen.told)
    assert re.search(r"Dashboard +http://127\.0\.0\.1:\d+/enter\?key=\S+\r\n", plain)
    assert "opens one browser, once; until then it holds" in plain
    screen.press("\x03")
    assert screen.exit_code() in {0, 130}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 0, "warning: this kernel does not tell who has opened a connection"),
        (
            ("--proxy", "127.0.0.1", "--proxy-user", "0"),
            2,
            "the proxy would never be believed",
        ),
    ],
)
def test_a_kernel_that_names_no_owners_is_told_of(
    tmp_path, monkeypatch, words, code, said
):
    """A dashboard goes on, with a warning; one that relies on it is not started."""
    stored(tmp_path).close()
    monkeypatch.setattr("jobpool.dashboard.access.peer.names_owners", lambda: False)

    def serve(_, listening, *, begun):
        listening.close()
        begun()

    monkeypatch.setattr("jobpool.dashboard.serving.serve", serve)
    listen = ("--listen", "127.0.0.1:0")
    done = CliRunner().invoke(
        cli, ["dashboard", "--store", url_of(tmp_path), *listen, *words]
    )
    assert done.exit_code == code
    assert bool(done.stdout) is (code == 0)  # a link
    assert said in done.stderr


def test_it_listens_nowhere_else_without_authentication(tmp_path):
    stored(tmp_path).close()
    words = ["dashboard", "--store", url_of(tmp_path), "--listen", "0.0.0.0:0"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert "nothing was started" in done.stderr


def test_nobody_who_does_not_ask_loads_its_libraries():
    """Neither importing jobpool, nor its command line, nor a supervisor."""
    code = (
        "import sys, jobpool, jobpool.cli.root, jobpool.supervisor.serve\n"
        "found = {'starlette', 'uvicorn', 'jinja2', 'anyio'} & set(sys.modules)\n"
        "assert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, check=False)
    assert done.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_a_session_is_of_the_user_who_has_opened_it(tmp_path):
    """Its cookie in the hands of another user of this host opens nothing.

    A browser sends it to any port of this host, also to one where they listen.
    """
    stored(tmp_path).close()
    with served(tmp_path) as (_, link):
        entered, _ = ask(link)
        cookie = entered.headers["Set-Cookie"].partition(";")[0]
        os.seteuid(NOBODY)
        try:
            stolen, body = ask(link, "/", cookie)
        finally:
            os.seteuid(0)
        assert stolen.status == 401
        assert "shop" not in body
        assert ask(link, "/", cookie)[0].status == 200


def test_it_asks_for_a_token_where_it_can_be_reached_from_elsewhere(tmp_path):
    stored(tmp_path).close()
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ada operator {'t' * 32}\n")
    tokens.chmod(0o600)
    more = ("--listen", f"{EVERYWHERE}:0", "--token-file", str(tokens))
    with served(tmp_path, *more) as (_, said):
        link = said.replace(EVERYWHERE, "127.0.0.1")
        assert ask(link, "/")[0].status == 401
        header = {"Authorization": f"Bearer {'t' * 32}"}
        assert ask(link, "/", **header)[0].status == 200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--proxy", "127.0.0.1"), "--proxy-user"),
        (("--proxy", "10.0.0.5", "--token-file", "x"), "exclude each other"),
        (("--role", "admin"), "need --proxy"),
        (("--proxy", "10.0.0.5", "--role", "god"), "'god' is not a role"),
        (("--proxy", "127.0.0.1", "--proxy-user", "no-such-user"), "no user"),
    ],
)
def test_who_may_ask_is_said_without_contradiction(tmp_path, words, said):
    """Nothing is started by halves."""
    stored(tmp_path).close()
    done = CliRunner().invoke(cli, ["dashboard", "--store", url_of(tmp_path), *words])
    assert done.exit_code == 2
    assert said in done.stderr
