"""Webhooks and commands: what they send, where they do not go, and for how long."""

import datetime as dt
import errno
import hashlib
import hmac
import json
import os
import signal
import socket
import ssl
import tempfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import Mock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from jobpool.core.config.settings import AlertSettings
from jobpool.monitoring.alerts.receivers import http
from jobpool.monitoring.alerts.receivers.command import Command
from jobpool.monitoring.alerts.receivers.configured import receivers_of
from jobpool.monitoring.alerts.receivers.http import is_public, request
from jobpool.monitoring.alerts.receivers.receiver import NotTaken
from jobpool.monitoring.alerts.receivers.webhook import Webhook

BODY = b'{"id":"1-opened"}'


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Wait for a busy machine, unless a test is about what takes too long."""
    monkeypatch.setattr(http, "LIMIT_S", 60.0)


@contextmanager
def server(status=204, headers=(), body=b"", tls=None):
    """Serve on loopback, with TLS or without; yield the URL, and what has come."""
    came = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            came.append((self.path, dict(self.headers), self.rfile.read(length)))
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args):
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        serving.handle_error = lambda *_args: None  # a client that does not trust it
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            serving.socket = context.wrap_socket(serving.socket, server_side=True)
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        try:
            port = serving.server_address[1]
            here = (
                f"http://127.0.0.1:{port}"
                if tls is None
                else f"https://localhost:{port}"
            )
            yield here, came
        finally:
            serving.shutdown()
            thread.join()


def webhook(url, **more):
    given = {"secret_file": None, "allow_private": True, "now_s": lambda: 1764144000.5}
    return Webhook(url, **{**given, **more})


def test_a_webhook_posts_json_that_its_key_signs(tmp_path):
    """Over the time and the body, as the manual says a receiver checks it."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    with server() as (url, came):
        one = webhook(f"{url}/a?b=c", secret_file=str(secret))
        assert one.send("1-opened", BODY) == "204 No Content"
    ((path, headers, body),) = came
    assert (path, body) == ("/a?b=c", BODY)
    assert headers["Content-Type"] == "application/json"
    assert headers["Jobpool-Delivery"] == "1-opened"
    signed = hmac.new(b"s3cret", b"1764144000." + BODY, hashlib.sha256).hexdigest()
    assert headers["Jobpool-Signature"] == f"t=1764144000,v1={signed}"


@pytest.mark.parametrize("content", [None, " \n"])
def test_nothing_is_sent_unsigned(tmp_path, content):
    secret = tmp_path / "secret"
    if content is not None:
        secret.write_text(content)
    with server() as (url, came):
        with pytest.raises(NotTaken, match="nothing was sent unsigned"):
            webhook(url, secret_file=str(secret)).send("1-opened", BODY)
        assert came == []


@pytest.mark.parametrize(
    ("status", "said"),
    [(500, "said 500 Internal Server Error: no room"), (404, "404"), (302, "redirect")],
)
def test_what_is_not_2xx_is_not_taken(status, said):
    """A redirect is not followed, wherever it leads."""
    with server() as (other, came):
        headers = [("Location", other)] if status == 302 else []
        with (
            server(status, headers, b"no room\nat all") as (url, _),
            pytest.raises(NotTaken, match=said),
        ):
            webhook(url).send("1-opened", BODY)
        assert came == []


def test_a_message_is_taken_whatever_follows_a_2xx():
    """It would be sent again, although the receiver has it."""
    chunked = [("Transfer-Encoding", "chunked")]
    with server(200, chunked, b"no chunk\r\n") as (url, came):
        assert webhook(url).send("1-opened", BODY) == "200 OK"
    assert len(came) == 1


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254"),
        *("100.64.0.1", "0.0.0.1", "224.0.0.1", "255.255.255.255", "::1", "::"),
        *("fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"),
        *("2002:7f00:1::", "ff02::1", "64:ff9b:1::7f00:1", "fec0::1"),
        *("::127.0.0.1", "::ffff:0:127.0.0.1"),
    ],
)
def test_private_addresses_are_refused_before_anything_is_sent(monkeypatch, address):
    """Whatever name leads there, and in whatever dress they come."""
    assert not is_public(address)
    found = [(0, 0, 0, "", ("93.184.216.34", 80)), (0, 0, 0, "", (address, 80))]
    monkeypatch.setattr(http.socket, "getaddrinfo", lambda *_args, **_more: found)
    monkeypatch.setattr(http.socket, "create_connection", pytest.fail)
    with pytest.raises(NotTaken, match=r"nothing was sent.*allow_private"):
        request("POST", "http://hooks.example.com/x", body=BODY)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1"])
def test_addresses_of_the_internet_are_allowed(address):
    assert is_public(address)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A file with a key, and a certificate of localhost that it has signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        key.private_bytes(
            pem,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(pem)
    )
    return path


def test_a_certificate_must_be_trusted_and_the_host_s(certificate, monkeypatch):
    """By whom this machine trusts; else nothing is sent."""
    with server(tls=certificate) as (url, came):
        with pytest.raises(NotTaken, match=r"localhost:.*certificate verify failed"):
            webhook(url).send("1-opened", BODY)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with pytest.raises(NotTaken, match=r"127.0.0.1:.*certificate verify failed"):
            webhook(url.replace("localhost", "127.0.0.1")).send("1-opened", BODY)
        assert came == []
        assert webhook(f"{url}/x").send("1-opened", BODY) == "204 No Content"
    ((path, headers, _),) = came
    assert (path, headers["Host"]) == ("/x", url.removeprefix("https://"))


def test_a_server_that_drips_is_left_at_the_limit(monkeypatch):
    """Each byte comes in time; the whole does not."""
    monkeypatch.setattr(http, "LIMIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def drip():
            try:
                peer, _ = listening.accept()
            except OSError:  # the limit was over before anybody connected
                return
            with peer:
                while not over.wait(0.01):
                    try:
                        peer.sendall(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        with pytest.raises(NotTaken):
            request("POST", url, body=BODY, allow_private=True)
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_server_that_is_away_is_named():
    with socket.socket() as one:  # it has the port, so that nobody else listens there
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        with pytest.raises(NotTaken, match=f"127.0.0.1:{port}: .*refused"):
            request("GET", f"http://127.0.0.1:{port}", allow_private=True)


def test_a_command_gets_json_on_its_standard_input(tmp_path):
    script = f"cat > {tmp_path}/got"
    assert Command(["sh", "-c", script]).send("1-opened", BODY) == "exit code 0"
    assert json.loads((tmp_path / "got").read_bytes()) == {"id": "1-opened"}


@pytest.mark.parametrize(
    ("script", "limit_s", "said"),
    [
        ("echo no such team >&2; exit 3", 60.0, "sh: exit code 3: no such team"),
        ("kill -9 $$", 60.0, "sh: signal 9"),
        ("sleep 60 & wait", 0.2, "did not end within 0.2 s; killed"),
    ],
)
def test_a_command_that_fails_has_not_taken_it(script, limit_s, said):
    with pytest.raises(NotTaken, match=said):
        Command(["sh", "-c", script], limit_s=limit_s).send("1-opened", BODY)


def test_only_the_first_of_what_a_command_says_is_kept():
    """However much it is, and nothing of it lies on a disk."""
    script = "yes no such team | head -c 1000000; exit 3"
    with pytest.raises(NotTaken, match="exit code 3: no such team") as caught:
        Command(["sh", "-c", script]).send("1-opened", BODY)
    assert len(str(caught.value)) < 400


def test_a_command_that_closes_its_output_is_waited_for(tmp_path):
    script = f"exec >&- 2>&-; cat > {tmp_path}/got"
    assert Command(["sh", "-c", script]).send("1-opened", BODY) == "exit code 0"
    assert (tmp_path / "got").read_bytes() == BODY


def test_what_a_command_has_left_running_is_not_waited_for(tmp_path):
    """Though it has the output still."""
    script = f"sleep 60 & echo $! > {tmp_path}/pid; echo no such team; exit 3"
    try:
        with pytest.raises(NotTaken, match="exit code 3: no such team"):
            Command(["sh", "-c", script], limit_s=30.0).send("1-opened", BODY)
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_name_that_nobody_looks_up_in_time_is_not_waited_for(monkeypatch):
    """Else others take the alert over, and it is told twice."""
    over = threading.Event()
    monkeypatch.setattr(http, "LIMIT_S", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: over.wait(30))
    try:
        with pytest.raises(NotTaken, match=r"slow\.example:443: no address was found"):
            request("POST", "https://slow.example/", body=BODY)
    finally:
        over.set()


def test_a_command_is_told_also_while_disks_are_full(tmp_path, monkeypatch):
    """That is when it is needed."""
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(tempfile, "_get_default_tempdir", Mock(side_effect=full))
    monkeypatch.setattr(tempfile, "tempdir", None)
    script = f"cat > {tmp_path}/got"
    assert Command(["sh", "-c", script]).send("1-opened", BODY) == "exit code 0"
    assert (tmp_path / "got").read_bytes() == BODY


def test_without_a_thread_it_is_not_taken(monkeypatch):
    """A host that is exhausted is no reason to end."""
    lacks = RuntimeError("can't start new thread")
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=lacks))
    with pytest.raises(NotTaken, match=r"x\.example:443: can't start new thread"):
        request("POST", "https://x.example/", body=BODY)


def test_a_command_that_does_not_exist_is_named():
    with pytest.raises(NotTaken, match="/no/such: No such file or directory"):
        Command(["/no/such"]).send("1-opened", BODY)


def test_receivers_are_those_that_are_configured():
    """What is shown of them has no path and no arguments: these are often secrets."""
    settings = AlertSettings(
        webhook="https://hooks.example.com/T0/secret", command=("/bin/page", "s3cret")
    )
    found = receivers_of(settings)
    assert {name: one.place for name, one in found.items()} == {
        "webhook": "https://hooks.example.com/…",
        "command": "/bin/page",
    }
    assert receivers_of(AlertSettings()) == {}
