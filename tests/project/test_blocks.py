"""README.md and the manual: their code runs, their sessions show what happens."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.readme import DOCUMENTS, RUN, Walk, blocks, longest_s, masked, steps_of

AT_ONCE = 4
"""Documents walked at the same time: most of a walk is waiting for processes."""
ONLY_SHOWN_MAX = 4
BLOCKS = [(document, block) for document in DOCUMENTS for block in blocks(document)]
WALKED = [
    pytest.param(document, block, marks=pytest.mark.timeout(most_s))
    for document in DOCUMENTS
    for most_s in [longest_s(document)]
    for block in blocks(document)
    if block.is_run
]
"""A test waits for the whole walk, which has begun once all those before it have ended:
it may take as long as all of its steps together."""
ONLY_SHOWN = [(document, block) for document, block in BLOCKS if not block.is_run]


def name_of(value):
    """Return a case's name: the document, the line of its block."""
    return value.stem if isinstance(value, Path) else f"line{value.line}"


@pytest.fixture(scope="module")
def walks(request, tmp_path_factory):
    """Each requested document: its walk, and the outcome by line."""
    cases = [item.callspec.params for item in request.session.items if is_walked(item)]
    asked = dict.fromkeys(case["document"] for case in cases)
    readers = {
        document: Walk(document, tmp_path_factory.mktemp(document.stem))
        for document in asked
    }
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            document: (reader, pool.submit(reader.run))
            for document, reader in readers.items()
        }


def is_walked(item):
    """Whether a test to be run needs its document walked."""
    return item.path == Path(__file__) and "walks" in item.fixturenames


@pytest.mark.parametrize(("document", "block"), WALKED, ids=name_of)
def test_what_a_document_shows_is_what_happens(document, block, walks):
    """Each block does what it says, in the order of its document."""
    _, done = walks[document]
    found = done.result()[block.line]
    if isinstance(found, Exception):
        raise found
    for answer in found:
        assert answer.seen == answer.shown, answer.what


@pytest.mark.parametrize(("document", "block"), ONLY_SHOWN, ids=name_of)
def test_a_block_that_is_not_run_says_why(document, block):
    """A block that is not run may be wrong: the reason is given above it."""
    assert block.reason, f"{document.name}:{block.line} ({block.language or 'no tag'})"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_few_blocks_are_not_run(document):
    """A page convinces by what runs."""
    shown = [block for case, block in ONLY_SHOWN if case == document]
    assert len(shown) <= ONLY_SHOWN_MAX


def test_there_are_blocks_to_run():
    """The walks do not pass because they find nothing."""
    assert {block.language for _, block in BLOCKS} >= RUN
    sessions = [steps_of(b.text) for _, b in BLOCKS if b.language == "console"]
    assert any(step.after for steps in sessions for step in steps)


def test_every_fence_is_a_block():
    """No block is missed because of an indent or a word after its language."""
    for document in DOCUMENTS:
        lines = document.read_text().splitlines()
        fences = [line for line in lines if line.lstrip().startswith(("```", "~~~"))]
        assert len(fences) == 2 * len(blocks(document)), document.name


def test_a_session_that_fails_is_seen(tmp_path):
    """A wrong output, an exit code, a file without a name: each is found."""
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ echo one\ntwo\n```\n"
        "```sh\necho three\nfalse\n```\n"
        "```sh\necho three\n```\n"
        "```python\nprint(4)\n```\n"
        "<!-- not run: it is wrong -->\n```python\nprint(5)\n```\n"
    )
    done = Walk(page, tmp_path).run()
    wrong, failed, fine, nameless = done.values()
    assert (wrong[0].shown, wrong[0].seen) == (["two"], ["one"])
    assert failed[0].seen == ["three", "exit code 1"]
    assert fine[0].seen == fine[0].shown == []
    assert isinstance(nameless, ValueError)


def test_masks_hide_what_varies_and_nothing_else():
    """A limit, a verdict, a state and a count stay; a clock, a pid, a peak do not."""
    line = "10:00:02 job 3 out_of_memory  cpu/1  attempt 1  killed at 258MiB, over"
    assert masked([f"{line} its memory limit of 256MiB, again in 1s"]) == [
        (
            "<clock> job 3 out_of_memory  cpu/<slot>  attempt 1  killed at <size>,"
            " over its memory limit of 256MiB, again in 1s"
        )
    ]
    assert masked(["  observed  2.75ms  22MiB", "limits  10m00s  1GiB"]) == [
        "observed  <seconds>  <size>",
        "limits  10m00s  1GiB",
    ]
    assert (
        masked(["by ann, 61.5s ago", "by ann, 1m01s ago"])
        == ["by <user>, <seconds> ago"] * 2
    )
    assert masked(["due 2026-11-25T10:00:01Z", "slot big/3  and 1/2"]) == [
        "due <time>",
        "slot big/<slot>  and 1/2",
    ]
