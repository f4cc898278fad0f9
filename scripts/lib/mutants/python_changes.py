"""Which small faults a Python file can have: found in its tree, made in its text."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

from mutants.change import Change

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ENTRIES_MIN = 2


def changes_of(file: str, source: bytes) -> Iterator[Change]:
    """Yield every fault that a file can have, in its order."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    yield from finder.found


class _Finder(ast.NodeVisitor):
    """Walks a file's tree, and notes what could be wrong in it."""

    def __init__(self, file: str, source: bytes) -> None:
        self.found: list[Change] = []
        self._file = file
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._reached: tuple[int, ...] = ()
        self._depth = 0

    def visit(self, node: ast.AST) -> None:
        """Look at a node and what is below it."""
        if _is_no_behaviour(node):
            return
        outer = self._reached
        if isinstance(node, ast.stmt) and self._depth:
            self._reached = tuple(range(node.lineno, _last_line(node) + 1))
        if made := _MAKERS.get(type(node)):
            for new in made(node):
                self._note(node, new)
        for condition in _conditions(node):
            self._note(condition, f"(not {ast.unparse(condition)})")
        if isinstance(node, ast.Assign | ast.AnnAssign) and not self._depth:
            for entry, new in _table_changes(node.value):
                self._note(entry, new)
        self._visit_below(node)
        self._reached = outer

    def _visit_below(self, node: ast.AST) -> None:
        if isinstance(node, _FUNCTIONS):
            # Defaults are read at import, the body when it is called.
            self.visit(node.args)
            self._depth += 1
            for statement in node.body:
                self.visit(statement)
            self._depth -= 1
        elif isinstance(node, ast.ClassDef):
            for statement in node.body:
                self.visit(statement)
        elif isinstance(node, ast.AnnAssign):
            if node.value:
                self.visit(node.value)
        elif isinstance(node, ast.Raise):
            return  # what a refusal says is for people
        else:
            self.generic_visit(node)

    def _note(self, node: ast.AST, new: str) -> None:
        assert isinstance(node, ast.expr | ast.stmt)  # noqa: S101 - for the type
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        old = self._source[start:end].decode()
        if new != old:
            self.found.append(
                Change(
                    file=self._file,
                    start=start,
                    end=end,
                    old=old,
                    new=new,
                    line=node.lineno,
                    text=self._lines[node.lineno - 1].decode().strip(),
                    lines=self._reached,
                )
            )


def _is_no_behaviour(node: ast.AST) -> bool:
    """Say whether nothing that runs can be wrong here."""
    match node:
        case ast.JoinedStr() | ast.arg() | ast.Import() | ast.ImportFrom():
            return True
        # A text for people; zip's strict only looks for a bug of ours.
        case ast.Expr(value=ast.Constant()) | ast.keyword(arg="strict"):
            return True
        case ast.ClassDef(bases=bases):
            return any(isinstance(b, ast.Name) and b.id == "Protocol" for b in bases)
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in {"__slots__", "__all__"}
        case ast.If(test=ast.Name(id=name)):
            return name == "TYPE_CHECKING"
    return False


def _last_line(node: ast.stmt) -> int:
    """Return where a statement ends, or the head of one with others below it."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not body:
        return node.end_lineno or node.lineno
    first = body[0].pattern if isinstance(node, ast.Match) else body[0]
    return max(node.lineno, first.lineno - 1)


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a node asks, where no other fault turns the answer round."""
    asked: list[ast.expr] = []
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        asked = [node.test]
    elif isinstance(node, ast.comprehension):
        asked = node.ifs
    changed = ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant | ast.NamedExpr
    yield from (condition for condition in asked if not isinstance(condition, changed))


def _compare(node: ast.Compare) -> Iterator[str]:
    for nth, operator in enumerate(node.ops):
        other = copy.deepcopy(node)
        other.ops[nth] = _COMPARED[type(operator)]()
        yield ast.unparse(other)


def _bool(node: ast.BoolOp) -> Iterator[str]:
    other = copy.deepcopy(node)
    other.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    yield f"({ast.unparse(other)})"


def _binary(node: ast.BinOp) -> Iterator[str]:
    if any(
        isinstance(part, ast.Constant | ast.JoinedStr) and not _is_number(part)
        for part in (node.left, node.right)
    ):
        return  # texts are put together
    if operator := _CALCULATED.get(type(node.op)):
        other = copy.deepcopy(node)
        other.op = operator()
        yield f"({ast.unparse(other)})"


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _augmented(node: ast.AugAssign) -> Iterator[str]:
    if operator := _CALCULATED.get(type(node.op)):
        other = copy.deepcopy(node)
        other.op = operator()
        yield ast.unparse(other)
    yield "pass"


def _unary(node: ast.UnaryOp) -> Iterator[str]:
    if isinstance(node.op, ast.Not):
        yield f"({ast.unparse(node.operand)})"


def _constant(node: ast.Constant) -> Iterator[str]:
    if isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node.value, int | float):
        yield repr(node.value + 1)
        if node.value:
            yield repr(node.value - 1)


def _call(node: ast.Call) -> Iterator[str]:
    if isinstance(node.func, ast.Name) and node.func.id in _NAMES:
        other = copy.deepcopy(node)
        other.func = ast.Name(_NAMES[node.func.id])
        yield ast.unparse(other)


def _returned(node: ast.Return) -> Iterator[str]:
    if node.value is not None and not isinstance(node.value, ast.Constant):
        yield "return None"


def _assigned(node: ast.Assign) -> Iterator[str]:
    if all(
        isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets
    ):
        yield "pass"


def _removed(_node: ast.stmt) -> Iterator[str]:
    yield "pass"


def _expression(node: ast.Expr) -> Iterator[str]:
    if isinstance(node.value, ast.Call):
        yield "pass"


_MAKERS: dict[type[ast.AST], Callable[..., Iterator[str]]] = {
    ast.Compare: _compare,
    ast.BoolOp: _bool,
    ast.BinOp: _binary,
    ast.AugAssign: _augmented,
    ast.UnaryOp: _unary,
    ast.Constant: _constant,
    ast.Call: _call,
    ast.Return: _returned,
    ast.Assign: _assigned,
    ast.Raise: _removed,
    ast.Continue: _removed,
    ast.Break: _removed,
    ast.Expr: _expression,
}


def _table_changes(value: ast.AST | None) -> Iterator[tuple[ast.expr, str]]:
    """Yield the faults of a table: an entry that is another's, or that is missing."""
    if value is None or isinstance(value, ast.Subscript):
        return  # nothing, or a type
    if isinstance(value, ast.Dict) and len(value.values) >= _ENTRIES_MIN:
        texts = [ast.unparse(entry) for entry in value.values]
        for nth, entry in enumerate(value.values):
            others = (*texts[nth + 1 :], *texts[:nth])
            if other := next((text for text in others if text != texts[nth]), None):
                yield entry, other
    elif isinstance(value, ast.Set | ast.Tuple) and len(value.elts) >= _ENTRIES_MIN:
        for nth in range(len(value.elts)):
            fewer = copy.deepcopy(value)
            del fewer.elts[nth]
            yield value, ast.unparse(fewer)
    for below in ast.iter_child_nodes(value):
        yield from _table_changes(below)
