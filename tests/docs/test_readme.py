"""README.md: its code runs, its sessions show what really happens."""

import pytest

from readme import README, STEP_S, Walk, blocks, masked, steps_of

TEXT = README.read_text()
BLOCKS = blocks()
DONE = [b for b in BLOCKS if b.language in ("python", "toml", "console", "sql")]
FIRST_CODE_LINE_MAX = 25


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """Everything that the README shows, done in order: the reader, answers by line."""
    reader = Walk(tmp_path_factory.mktemp("readme"))
    done = {}
    for block in DONE:
        try:
            done[block.line] = reader.answers(block)
        except Exception as problem:  # noqa: BLE001 - raised again by its own test
            done[block.line] = problem
    yield reader, done
    reader.close()


@pytest.mark.timeout(3 * STEP_S)
@pytest.mark.parametrize("block", DONE, ids=lambda b: f"line{b.line}-{b.language}")
def test_what_the_readme_shows_is_what_happens(block, walk):
    """Each block does what it says, in the order of the README."""
    found = walk[1][block.line]
    if isinstance(found, Exception):
        raise found
    for answer in found:
        assert answer.seen == answer.shown, answer.what


def test_the_readme_names_every_file_beside_the_database(walk):
    """Whoever backs up or deletes a store knows what belongs to it."""
    files = walk[0].store_files()
    assert len(files) > 1
    assert {name for name in files if f"`{name}`" not in TEXT} == {"jobpool.db.run"}
    assert "`jobpool.db.run/`" in TEXT


def test_the_readme_has_code_to_run():
    """The walk does not pass by finding nothing."""
    assert {"python", "console", "toml", "sql"} <= {block.language for block in BLOCKS}
    sessions = [steps_of(b.text) for b in BLOCKS if b.language == "console"]
    assert any(step.after for steps in sessions for step in steps)


def test_first_code_comes_early():
    """Whoever opens the README sees code without scrolling."""
    assert BLOCKS[0].language == "python"
    assert BLOCKS[0].line <= FIRST_CODE_LINE_MAX


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
