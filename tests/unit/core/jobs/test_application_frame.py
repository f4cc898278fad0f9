"""The application's own frame is found among those of Python, packages and jobpool."""

import os
from pathlib import Path

import pytest

import jobpool
from jobpool.core.jobs.application_frame import own_frame

HEAD = "Traceback (most recent call last):\n"
STDLIB = Path(os.__file__).parent
OURS = Path(jobpool.__file__).parent
PACKAGES = STDLIB / "site-packages"
DURING = f"\nDuring handling of the above, another exception occurred:\n\n{HEAD}"
RAISED = "ValueError: no\n"


def frames(*places, comma=","):
    return "".join(
        f'  File "{path}", line {line}{comma} in {name}\n    some code\n'
        for path, line, name in places
    )


JOB, CHARGE = ("/srv/shop/jobs.py", 9, "pay"), ("/srv/shop/vendor.py", 41, "charge")
REQUEST = (PACKAGES / "requests/api.py", 3, "get")
SEND = ("/srv/shop/.venv/lib/python3.11/site-packages/httpx/_client.py", 1, "send")
SOCKET = (STDLIB / "socket.py", 8, "create_connection")
ENQUEUE = (OURS / "client/handler.py", 5, "enqueue")
FROZEN = ("<frozen importlib._bootstrap>", 1, "_gcd_import")
LOOP = (PACKAGES / "multiprocess/process.py", 2, "_bootstrap")


@pytest.mark.parametrize(
    ("traceback", "frame"),
    [
        (frames(JOB, CHARGE), "/srv/shop/vendor.py:41 charge"),
        (frames(JOB, CHARGE, REQUEST, SOCKET), "/srv/shop/vendor.py:41 charge"),
        (frames(JOB, SEND, FROZEN), "/srv/shop/jobs.py:9 pay"),
        (frames(JOB, ENQUEUE), "/srv/shop/jobs.py:9 pay"),
        (frames(SEND, REQUEST, SOCKET), f"{SEND[0]}:1 send"),
        (frames(SOCKET), None),
        ("", None),
        (f"{frames(CHARGE)}{RAISED}{DURING}{frames(JOB)}", "/srv/shop/jobs.py:9 pay"),
    ],
)
def test_the_innermost_application_frame_of_a_traceback_is_found(traceback, frame):
    """Of the exception that ended the attempt.

    Of an installed application's handler.
    """
    assert own_frame(f"{HEAD}{traceback}{RAISED}", "not looked at") == frame


def test_the_application_frame_of_a_killed_attempt_is_found():
    """The thread that the signal interrupted, its innermost frame first."""
    current = frames(SOCKET, CHARGE, JOB, ENQUEUE, LOOP, comma="")
    other = frames(("/srv/shop/other.py", 1, "loop"), comma="")
    stack = (
        f"Thread 0x1 (most recent call first):\n{other}\n"
        f"Current thread 0x2 (most recent call first):\n{current}\n"
        "Processes below it:\n  4711 convert"
    )
    assert own_frame(None, stack) == "/srv/shop/vendor.py:41 charge"
    installed = frames(SOCKET, REQUEST, SEND, ENQUEUE, LOOP, comma="")
    assert own_frame(None, installed) == f"{SEND[0]}:1 send"


def test_without_evidence_there_is_no_frame():
    """Nothing is invented, and a text that is not a dump raises nothing."""
    assert own_frame(None, None) is None
    assert own_frame("", "garbage") is None
    assert own_frame(f'{HEAD}  File "{"x" * 9999}", line 1, in f', None)
