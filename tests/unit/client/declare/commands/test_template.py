"""A command's words: each stays one word, and none becomes an option or a script."""

import pytest

from jobpool import ArgumentsRejected, ConfigError, JobPool
from jobpool.client.declare.commands.template import Template


def filled(argv, **arguments):
    return Template(argv, None, {}).filled(arguments)


def test_an_argument_is_put_into_its_word_and_splits_nothing():
    """Blanks, quotes, line breaks, $(...) and braces of a value stay as they are."""
    hostile = "a b\"'\n$(rm -rf /) {dst} ;|&"
    assert filled(
        ["pandoc", "{src}", "-o{dst}.pdf", "{src}:{dst}"], src=hostile, dst=7
    ) == [
        "pandoc",
        hostile,
        "-o7.pdf",
        f"{hostile}:7",
    ]


def test_double_braces_are_braces():
    assert filled(["awk", "{{print $1}}", "{file}"], file="x") == [
        "awk",
        "{print $1}",
        "x",
    ]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("pandoc {src}", "expected a list of words"),
        ([], "must be a program"),
        ([""], "must be a program"),
        (["{tool}", "x"], "which program runs is never up to a job"),
        (["x", 3], "expected text for each word"),
        (["x", "a\0b"], "NUL"),
        (["x", "{a.b}"], "cannot be the name"),
        (["x", "{a[0]}"], "cannot be the name"),
        (["x", "{}"], "cannot be the name"),
        (["x", "{0}"], "cannot be the name"),
        (["x", "{class}"], "cannot be the name"),
        (["x", "{_a}"], "cannot be the name"),
        (["x", "{a!r}"], "formats 'a'"),
        (["x", "{a:>10}"], "formats 'a'"),
        (["x", "{a"], "cannot be read"),
        (["x", "a}"], "cannot be read"),
        (["sh", "-c", "wc -l {file}"], "the shell would run"),
        (["/bin/bash", "-ec", "{script}"], "the shell would run"),
        (["sh", "-ce", "{script}"], "the shell would run"),
    ],
)
def test_what_is_no_command_is_refused_where_it_is_declared(argv, said):
    with pytest.raises(ConfigError, match="command: ") as refused:
        JobPool().command("x", argv, pool="cpu")
    assert said in str(refused.value)


def test_a_shell_may_have_arguments_beside_its_script():
    assert filled(["sh", "-c", 'wc -l "$1"', "sh", "{file}"], file="a b")[-1] == "a b"


@pytest.mark.parametrize("value", ["-rf", "--output=/etc/passwd", -1, -0.5, "a\0b"])
def test_a_value_that_begins_a_word_is_no_option(value):
    jobs = JobPool()
    command = jobs.command("x", ["rm", "{file}"], pool="cpu")
    with pytest.raises(ArgumentsRejected, match="argument 'file'"):
        command.call(value)


@pytest.mark.parametrize("word", ["{a}{b}", "{a}-{b}"])
def test_an_empty_value_makes_no_option_of_what_follows_it(word):
    command = JobPool().command("x", ["rm", word], pool="cpu")
    with pytest.raises(ArgumentsRejected, match="argument 'a': it is empty"):
        command.call("", "-rf")
    command.call("x", "-rf")
    command.call(0, "-rf")
    JobPool().command("x", ["rm", "{a}.{b}"], pool="cpu").call("", "-rf")


def test_a_negative_zero_is_no_option():
    assert filled(["x", "{n}"], n=-0.0) == ["x", "0.0"]


@pytest.mark.parametrize(
    "argv", [["rm", "--", "{file}"], ["rm", "./{file}"], ["rm", "-o{file}"]]
)
def test_a_value_may_begin_with_a_dash_where_it_begins_no_option(argv):
    jobs = JobPool()
    jobs.command("x", argv, pool="cpu").call("-rf")
    with pytest.raises(ArgumentsRejected, match="NUL"):
        jobs.command("y", argv, pool="cpu").call("a\0b")


def test_a_place_that_begins_one_word_and_not_another_is_held_to_the_stricter_rule():
    jobs = JobPool()
    for kind, argv in [("a", ["x", "{f}", "o={f}"]), ("b", ["x", "o={f}", "{f}"])]:
        with pytest.raises(ArgumentsRejected, match="begins with '-'"):
            jobs.command(kind, argv, pool="cpu").call("-x")


def test_names_of_arguments_are_checked_when_a_call_is_made():
    jobs = JobPool()
    pdf = jobs.command(
        "pdf", ["x", "{src}", "-o", "{dst}", "{dpi}"], pool="cpu", defaults={"dpi": 300}
    )
    pdf.call("a", "b")
    pdf.call(src="a", dst="b", dpi=72.5)
    for wrong in ({"src": "a"}, {"src": "a", "dst": "b", "other": "c"}):
        with pytest.raises(ArgumentsRejected):
            pdf.call(**wrong)
    with pytest.raises(ArgumentsRejected):
        pdf.call("a", ["b", "c"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"defaults": {"other": 1}}, "'other', which has no place"),
        ({"stdin": "src"}, "both a word and the standard input"),
        ({"stdin": "a b"}, "cannot be the name"),
        ({"exit_codes": {"x": "dead"}}, "no exit status"),
        ({"exit_codes": {256: "dead"}}, "no exit status"),
        ({"exit_codes": {True: "dead"}}, "no exit status"),
        ({"exit_codes": {"9-3": "dead"}}, "no exit status"),
        ({"exit_codes": {3: "die"}}, "expected one of ok, retry, dead"),
        ({"exit_codes": {3: "dead", "1-5": "retry"}}, "3 is given twice"),
        ({"exit_codes": [3]}, "expected {status: meaning}"),
        ({"env": {"A=B": "x"}}, "name of a variable"),
        ({"env": {"A": 3}}, "expected text"),
        ({"result": "much"}, "result"),
        ({"timeout": "never"}, "timeout"),
    ],
)
def test_a_wrong_option_is_refused_and_registers_nothing(options, said):
    jobs = JobPool()
    with pytest.raises(ConfigError) as refused:
        jobs.command("x", ["prog", "{src}"], pool="cpu", **options)
    assert said in str(refused.value)
    assert jobs.handler_specs() == ()
