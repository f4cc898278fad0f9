"""Makes pictures of the dashboard; see scripts/screenshots."""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from support.browser.chromium import browser
from support.browser.places import PAGES, address_of
from support.browser.site import Site, served
from support.lively.fill import lively_file

MANUAL = Path(__file__).parents[2] / "src" / "jobpool" / "manual"
COLOURS = 256
_METHOD, _ROUNDS = Image.Quantize.MAXCOVERAGE, 3
"""Rare colours stay what they are, such as the purple of what is set aside; the ground,
which most of a picture is, comes right by some rounds of means."""
DESK, PHONE = (1280, 900), (390, 844)
SETTLE_MS = 400
"""Until times stand in the reader's zone and the first news has come."""


class Picture(NamedTuple):
    """One picture: a page, and how it is looked at."""

    file: str
    page: str
    """The name of its route."""
    size: tuple[int, int]
    dark: bool = False
    whole: bool = False
    """All of the page, and not only what is seen at first."""


SHOWN = (
    Picture("dashboard-overview.png", "overview", (1280, 960)),
    Picture("dashboard-phone.png", "overview", PHONE),
    Picture("dashboard-job.png", "job", (1280, 1100)),
)
"""Those that README.md and the manual show."""


def everything() -> Iterator[Picture]:
    """Yield pictures of every page in every way."""
    for route in PAGES:
        for how, size, dark in (
            ("light", DESK, False),
            ("dark", DESK, True),
            ("phone", PHONE, False),
        ):
            yield Picture(
                f"{route.name}-{how}.png", route.name, size, dark=dark, whole=True
            )


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(prog="scripts/screenshots")
    parser.add_argument("--all", type=Path, metavar="FOLDER")
    folder: Path | None = parser.parse_args().all
    pictures = SHOWN if folder is None else tuple(everything())
    place = folder or MANUAL
    place.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="jobpool-shop-") as shop,
        served(lively_file(shop)) as site,
        browser() as program,
    ):
        paths = _paths(site)
        for picture in pictures:
            content = _taken(program, site.url + paths[picture.page], picture)
            _save(content, place / picture.file)
            print(place / picture.file)


def _paths(site: Site) -> Mapping[str, str]:
    with site.opened() as store:
        return {route.name: address_of(store, route) for route in PAGES}


def _taken(program: Any, url: str, picture: Picture) -> bytes:
    width, height = picture.size
    context = program.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if picture.dark else "light",
        timezone_id="Europe/Berlin",
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.goto(url, wait_until="load")
        page.wait_for_timeout(SETTLE_MS)
        content: bytes = page.screenshot(full_page=picture.whole)
        return content
    finally:
        context.close()


def _save(content: bytes, path: Path) -> None:
    """Store a picture in few colours: a third of the size, and nobody sees it."""
    with Image.open(io.BytesIO(content)) as image:
        few = image.convert("RGB").quantize(COLOURS, method=_METHOD, kmeans=_ROUNDS)
        few.save(path, optimize=True)


if __name__ == "__main__":
    main()
