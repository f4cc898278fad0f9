"""The shop that the manual shows is the one that the demo runs."""

from importlib.resources import files

from jobpool.manual.pages import text_of


def test_the_manual_shows_the_whole_application():
    """Line by line, below the name of its file."""
    code = (files("jobpool.cli.demo.orders") / "app.py").read_text(encoding="utf-8")
    assert f"```python\n# jobs.py\n{code}```\n" in text_of("orders")
