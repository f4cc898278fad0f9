"""What becomes of an attempt: mostly what is usual, now and then a death."""

import math

from jobpool.core.jobs.job import Evidence
from jobpool.core.jobs.memory_trail import Trail, trail_json
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import Ending
from support.lively.shop import MIB

POISON = "invoice-2026-11-{n}.pdf"
STACK = """Thread 0x00007f2c (most recent call first):
  File "/srv/shop/vendor/PIL/Image.py", line 2941 in new
  File "/srv/shop/pdf.py", line 141 in draw
  File "/srv/shop/pdf.py", line 88 in render_pages
  File "/srv/shop/jobs.py", line 52 in render
"""
DECLINED = """Traceback (most recent call last):
  File "/srv/shop/jobs.py", line 71, in charge
    stripe.charge(order)
  File "/srv/shop/vendor/stripe.py", line 310, in charge
    raise CardError(answer.status, answer.code)
shop.vendor.stripe.CardError: HTTP 402 card_declined
"""
OUTPUT = """\x1b[32mINFO\x1b[0m opening {path}
INFO 1904 pages
INFO page 700 of 1904
"""


def succeeded(draw, kind):
    """Return an attempt that has used what is usual."""
    evidence = Evidence(
        peak_rss_bytes=round(kind.peak_bytes * draw.lognormvariate(0, 0.22)),
        duration_s=round(kind.run_s * draw.lognormvariate(0, 0.5), 3),
        cpu_s=round(kind.run_s * 0.8, 3),
    )
    return Ending(
        outcome=Outcome.SUCCEEDED, evidence=evidence, result=b'{"stored":true}'
    )


def out_of_memory(draw, kind, path):
    """Return one that has grown until its limit killed it."""
    limit, length_ms = kind.memory_bytes, round(draw.uniform(7600, 8500))
    peak = limit + round(draw.uniform(0.5, 4) * MIB)
    points = tuple(
        (
            round(length_ms * n / 40),
            round(
                38 * MIB
                + (peak - 38 * MIB) * math.expm1(3.2 * n / 40) / math.expm1(3.2)
            ),
        )
        for n in range(41)
    )
    return Ending(
        outcome=Outcome.OUT_OF_MEMORY,
        evidence=Evidence(
            reason=f"out of memory: {peak / MIB:.1f} MiB of {limit // MIB} MiB",
            signal=9,
            peak_rss_bytes=peak,
            cpu_s=length_ms / 1000 * 0.96,
            duration_s=length_ms / 1000,
            output=OUTPUT.format(path=path),
            stack=STACK,
            memory_trail=trail_json(Trail(limit, points)),
        ),
    )


def declined(draw, kind):
    """Return one whose service says no, for good."""
    return Ending(
        outcome=Outcome.FAILED,
        give_up=True,
        error_classes=("shop.vendor.stripe.CardError",),
        evidence=Evidence(
            reason="HTTP 402 card_declined",
            error_class="shop.vendor.stripe.CardError",
            error="HTTP 402 card_declined",
            traceback=DECLINED,
            peak_rss_bytes=kind.peak_bytes,
            duration_s=round(draw.uniform(0.3, 1.1), 3),
            cpu_s=0.04,
        ),
    )


def failed(draw, kind, error="ConnectionError", said="vendor closed the connection"):
    """Return one that has raised, and is tried again."""
    return Ending(
        outcome=Outcome.FAILED,
        error_classes=(error,),
        evidence=Evidence(
            reason=f"{error}: {said}",
            error_class=error,
            error=said,
            traceback=f"Traceback (most recent call last):\n  …\n{error}: {said}\n",
            peak_rss_bytes=kind.peak_bytes,
            duration_s=round(kind.run_s * draw.lognormvariate(0, 0.4), 3),
            cpu_s=0.1,
        ),
    )


def timed_out(kind):
    """Return one that has hung."""
    return Ending(
        outcome=Outcome.TIMED_OUT,
        evidence=Evidence(
            reason=f"timed out after {kind.timeout_s:.0f} s",
            signal=9,
            peak_rss_bytes=kind.peak_bytes,
            duration_s=kind.timeout_s,
            cpu_s=0.2,
            stack="Thread 0x00007f2c (most recent call first):\n"
            '  File "/usr/lib/python3.11/ssl.py", line 1167 in read\n'
            '  File "/srv/shop/feeds.py", line 33 in fetch\n',
        ),
    )


def crashed(draw, kind):
    """Return one whose process has died."""
    return Ending(
        outcome=Outcome.CRASHED,
        evidence=Evidence(
            reason="killed by signal 11 (SIGSEGV)",
            signal=11,
            peak_rss_bytes=kind.peak_bytes,
            duration_s=round(draw.uniform(0.1, 2), 3),
            cpu_s=0.1,
            output="about to decode frame 12\n",
            stack="Fatal Python error: Segmentation fault\n"
            '  File "/srv/shop/thumbs.py", line 19 in resize\n',
        ),
    )


def drawn(draw, kind, *, is_bad_time):
    """Return what becomes of an attempt of which nothing special is known.

    Args:
        draw: decides.
        kind: the job's.
        is_bad_time: a bad release of the pictures' code is in use.
    """
    chance = draw.random()
    if kind.name == "stripe.charge" and chance < 0.08:
        return declined(draw, kind)
    if kind.name == "feed.import" and chance < 0.06:
        return timed_out(kind)
    if kind.name == "feed.import" and chance < 0.2:
        return failed(draw, kind)
    if kind.name == "img.thumbnail" and chance < (0.1 if is_bad_time else 0.004):
        return crashed(draw, kind)
    return succeeded(draw, kind)
