"""The executor's parts by themselves: pickles, files, and the text of a death."""

import array
import enum
import pickle
import sys
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType

import pytest

from jobpool.core.jobs.job import Evidence
from jobpool.errors import JobCrashed, JobOutOfMemory, JobTimedOut
from jobpool.executor.caller.death_errors import death_error
from jobpool.executor.pickling.pickling import (
    dump_error,
    dump_parts,
    dumps,
    load_error,
    loads,
    packed,
)
from jobpool.executor.wire import spill_files
from jobpool.executor.wire.messages import Died
from jobpool.executor.wire.outcomes import ExecutorBroken, settle, unusable_bytes


@pytest.fixture
def main(monkeypatch):
    """Act as a program whose ``__main__`` can be filled."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec(  # noqa: S102 - the shortest way to functions of another module
        "import enum\n"
        "K = 2\n"
        "class Thing:\n"
        "    def twice(self): return 2 * K\n"
        "class Colour(enum.Enum):\n"
        "    RED = 1\n"
        "    CRIMSON = 1\n"
        "    def shout(self): return self.name + '!'\n"
        "    def __str__(self): return 'colour'\n"
        "def use(): return K, Colour.RED\n",
        vars(module),
    )
    return module


def test_importable_objects_go_by_name():
    """By the C pickler: short, and the same object comes back."""
    data = dumps((Path, [1, 2], {"a": None}))
    assert loads(data) == (Path, [1, 2], {"a": None})
    assert len(data) < 100


def test_objects_of_main_go_by_value(main):
    """Functions bring along the globals that they use, classes their methods."""
    data = dumps((main.use, main.Thing()))
    use, thing = loads(data)
    assert use is not main.use
    assert use()[0] == 2
    assert type(thing) is not main.Thing
    assert thing.twice() == 4


def test_an_enum_goes_by_value_with_aliases_and_methods(main):
    """It is an enumeration like the one that it was made from."""
    again = loads(dumps(main.Colour))
    assert isinstance(again, enum.EnumMeta)
    assert again is not main.Colour
    assert again.CRIMSON is again.RED
    assert (again.RED.shout(), str(again.RED)) == ("RED!", "colour")


def test_results_name_the_readers_own_classes(main):
    """An instance of a class of ``__main__`` comes back as one of the same class."""
    data = dumps([main.Thing(), main.Colour.RED], main_by_name=True)
    thing, colour = loads(data)
    assert type(thing) is main.Thing
    assert colour is main.Colour.RED


def test_a_class_missing_from_main_is_named_in_the_error(main):
    """Not a bare AttributeError."""
    data = dumps([main.Thing()], main_by_name=True)
    del main.Thing
    with pytest.raises(pickle.UnpicklingError, match=r"__main__\.Thing"):
        loads(data)


def test_a_packed_function_unpacks_to_itself():
    """Pickled once, however often it is sent."""
    stand_in = packed(lambda x: x + 1)
    assert loads(dumps((stand_in, 1)))[0](1) == 2
    with pytest.raises(TypeError):
        stand_in(1)


def test_an_exception_keeps_class_arguments_and_traceback():
    """The traceback comes as the text of its cause."""
    try:
        {}["missing"]
    except KeyError as error:
        again = load_error(dump_error(error, ()))
    assert (type(again), again.args) == (KeyError, ("missing",))
    assert '{}["missing"]' in str(again.__cause__)


def test_an_exception_without_a_text_is_sent_too():
    """Its own code may fail at any point."""

    class Hostile(Exception):
        def __str__(self):
            raise RuntimeError("no text")

        def __reduce__(self):
            raise RuntimeError("no pickle")

    again = load_error(dump_error(Hostile(), ()))
    assert isinstance(again, pickle.PicklingError)
    assert "Hostile" in str(again)
    assert "no pickle" in str(again)


# -- files -------------------------------------------------------------------------


def test_small_data_stays_in_the_frame(tmp_path):
    """No file is written."""
    data = b"x" * spill_files.INLINE_MAX_BYTES
    wrapped = spill_files.wrap([data], [str(tmp_path)])
    assert spill_files.unwrap(wrapped) == data
    assert spill_files.path_of(wrapped) is None
    assert not list(tmp_path.iterdir())


def test_large_data_goes_to_the_first_place_with_room(tmp_path, monkeypatch):
    """If there is too little it goes to the last one; `discard` removes it."""
    first, last = tmp_path / "first", tmp_path / "last"
    first.mkdir()
    last.mkdir()
    data = b"x" * (spill_files.INLINE_MAX_BYTES + 1)
    places = [str(first), str(last)]
    wrapped = spill_files.wrap([data], places)
    assert spill_files.path_of(wrapped).startswith(str(first))
    assert spill_files.unwrap(wrapped) == data
    spill_files.discard(wrapped)
    spill_files.discard(wrapped)
    assert not list(first.iterdir())
    monkeypatch.setattr(spill_files, "_room_bytes", lambda _directory: 0)
    assert spill_files.path_of(spill_files.wrap([data], places)).startswith(str(last))


def test_without_room_for_data_an_error_is_raised_and_nothing_stays(tmp_path):
    """The last place must take it."""
    data = b"x" * (spill_files.INLINE_MAX_BYTES + 1)
    with pytest.raises(FileNotFoundError):
        spill_files.wrap([data], [str(tmp_path / "missing")])


def test_an_invalid_result_fails_its_future():
    """A child may be hostile: the future gets an error, no other call is affected."""
    for wrapped in (b"", b"i", b"ivx", b"f/no/such/file", b"irrubbish"):
        future, told = Future(), []
        settle(future, wrapped, told.append)
        assert told == []
        assert isinstance(future.exception(0), pickle.UnpicklingError)


def test_an_unusable_child_breaks_the_executor():
    """`settle` says why, before anybody can see that it is."""
    future, told = Future(), []
    future.add_done_callback(lambda _future: told.append("seen"))
    settle(future, unusable_bytes(LookupError("nothing there")), told.append)
    why, *later = told
    assert "nothing there" in why
    assert later == ["seen"]
    assert isinstance(future.exception(0), ExecutorBroken)


# -- deaths ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        ("crashed", JobCrashed),
        ("timed_out", JobTimedOut),
        ("out_of_memory", JobOutOfMemory),
        ("interrupted", JobCrashed),
        ("canceled", JobCrashed),
    ],
)
def test_each_death_has_its_error(outcome, error):
    """A death by neither time nor memory is a crash."""
    assert type(death_error(Died(1, outcome, 1, Evidence()))) is error


def test_the_text_of_a_death():
    """Reason, time and memory in the first line; then output and stack."""
    evidence = Evidence(
        reason="killed by SIGSEGV (Segmentation fault); failure 1 of 1",
        signal=11,
        peak_rss_bytes=64 * 2**20,
        duration_s=1.5,
        output="first\nlast\n",
        stack='Current thread:\n  File "/app/x.py", line 3 in f\n\nExtension modules:',
    )
    text = str(death_error(Died(1, "crashed", 1, evidence)))
    assert text == (
        "killed by SIGSEGV (Segmentation fault); after 1.5s; peak memory 64MiB\n"
        "last output:\nfirst\nlast\n"
        'stack:\nCurrent thread:\n  File "/app/x.py", line 3 in f'
    )


@pytest.mark.parametrize("inside", [False, True], ids=["itself", "in an argument"])
def test_large_bytes_are_not_copied_before_they_are_written(tmp_path, inside):
    """Pickling passes them on as they are; what was written is the same."""
    data = bytes(range(256)) * (8 * 2**12)
    sent = {"data": [data]} if inside else data
    parts = dump_parts(sent)
    assert any(part is data for part in parts)
    wrapped = spill_files.wrap(parts, [str(tmp_path)])
    for read in (spill_files.unwrap, spill_files.map_in):
        assert loads(read(wrapped)) == sent


class Table:
    """Pickles its memory as NumPy's arrays do."""

    def __init__(self, cells):
        self.cells = array.array("d", cells)

    def __reduce_ex__(self, protocol):
        return Table.of, (pickle.PickleBuffer(self.cells),)

    @staticmethod
    def of(data):
        table = Table(())
        table.cells.frombytes(data)
        return table


@pytest.mark.parametrize("cells", [3, 2**14, 2**18], ids=["small", "large", "by file"])
def test_arrays_travel_unchanged(tmp_path, cells):
    """Their memory is counted in bytes, not in items, alone or in other objects."""
    table = Table(range(cells))
    wrapped = spill_files.wrap(dump_parts([table, "end"]), [str(tmp_path)])
    assert (spill_files.path_of(wrapped) is not None) == (cells * 8 > 2**20)
    back, end = loads(spill_files.map_in(wrapped))
    assert (back.cells, end) == (table.cells, "end")
    back, end = loads(dumps([table, "end"]))
    assert (back.cells, end) == (table.cells, "end")


def test_ctrl_c_while_a_call_is_pickled_reaches_the_caller():
    """Pressed in our own code, it is no reason why a call cannot be sent."""

    class Pressed:
        def __reduce__(self):
            raise KeyboardInterrupt

    with pytest.raises(pickle.PicklingError, match="KeyboardInterrupt"):
        dumps(Pressed())
    frames = {"__name__": "jobpool.executor.pickling.pickling"}
    exec("def press(_self): raise KeyboardInterrupt", frames)  # noqa: S102 - as if there
    Pressed.__reduce__ = frames["press"]
    with pytest.raises(KeyboardInterrupt):
        dumps(Pressed())
