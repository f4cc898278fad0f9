"""The demo's honest work: measure Python modules, hash files.

Handlers run in the demo's directory, so relative names lead there.
"""

from __future__ import annotations

import ast
import hashlib
import lzma
import os
import warnings
from pathlib import Path

import msgspec

import jobpool

WITNESS = "witness"
"""Each honest attempt appends a line here at its end: job id, attempt, process."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
)


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of modules: of one, or the sums of many."""

    files: int = 1
    bytes: int
    lines: int
    compressed_bytes: int
    """After lzma."""
    functions: int = 0
    classes: int = 0
    branches: int = 0
    not_python: int = 0
    """Files that Python itself refuses to parse; its library keeps some as tests."""


class Hashed(msgspec.Struct, frozen=True, kw_only=True):
    """Checksums of some files."""

    bytes: int
    lines: str
    """As ``sha256sum`` prints them: checksum, two spaces, path."""


def parse(path: str) -> Module:
    """Parse one module and measure it."""
    source = Path(path).read_bytes()
    size = len(source), source.count(b"\n"), len(lzma.compress(source))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        nodes = []
    module = Module(
        bytes=size[0],
        lines=size[1],
        compressed_bytes=size[2],
        functions=sum(isinstance(node, _FUNCTIONS) for node in nodes),
        classes=sum(isinstance(node, ast.ClassDef) for node in nodes),
        branches=sum(isinstance(node, _BRANCHES) for node in nodes),
        not_python=int(not nodes),
    )
    _testify()
    return module


def hash_files(paths: list[str]) -> Hashed:
    """Read and hash files."""
    lines = []
    size_bytes = 0
    for path in paths:
        with Path(path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size_bytes += file.tell()
        lines.append(f"{digest}  {path}\n")
    _testify()
    return Hashed(bytes=size_bytes, lines="".join(lines))


def _testify() -> None:
    """Leave a line in one write, so that parallel lines never mix."""
    job = jobpool.current()
    line = f"{job.id} {job.attempt} {os.getpid()}\n".encode()
    fd = os.open(WITNESS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)
