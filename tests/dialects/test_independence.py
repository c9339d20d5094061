"""Each dialect stands alone: none imports or names another, each is in both lists, each has tests and a place in the docs."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from otel_blackboard.processor import dialects
from otel_blackboard.processor.dialects import BY_FIELD, BY_ROLE, Dialect

FOLDER = Path(dialects.__file__).parent
MODULES = {
    path.stem: module
    for path in sorted(FOLDER.glob("[!_]*.py"))
    if hasattr(module := importlib.import_module(f"{dialects.__name__}.{path.stem}"), "DIALECT")
}
TESTS = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))


def test_every_module_is_in_both_lists_once() -> None:
    own = sorted(module.DIALECT.name for module in MODULES.values())
    for listed in (BY_ROLE, BY_FIELD):
        assert sorted(dialect.name for dialect in listed) == own
    assert len(set(own)) == len(own)


def test_the_conventions_come_last_by_role_and_our_own_first() -> None:
    assert BY_ROLE[-1].name == "gen_ai", "it also goes by the shape of a span"
    assert BY_ROLE[0].name == BY_FIELD[0].name == "blackboard"


@pytest.mark.parametrize("name", MODULES)
def test_no_dialect_imports_or_names_another(name: str) -> None:
    others = {other for other in MODULES if other != name}
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imported = {(node.module or "").rpartition(".")[2], *(alias.name for alias in node.names)}
            assert not imported & others, f"line {node.lineno}"
    code = ast.unparse(_without_docstrings(tree))
    named = {other for other in others if re.search(rf"['\"]{other}['\"]", code)}
    assert not named - _ALSO_A_WORD.get(name, set()), "names of others as values"


_ALSO_A_WORD = {"traceloop": {"llamaindex"}}
"""What an emitter writes as a value of its own that happens to be the name of a module."""


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ] or [ast.Pass()]
    return tree


@pytest.mark.parametrize("name", MODULES)
def test_every_dialect_says_how_it_is_known_and_has_tests(name: str) -> None:
    dialect: Dialect = MODULES[name].DIALECT
    marks = (*dialect.keys, *dialect.scopes)
    assert marks and all(mark.strip(".") for mark in marks), "a mark that every span has is none"
    said = [name, *(mark.rstrip(".") for mark in marks), *(mark.rstrip(".").replace(".", "__") for mark in marks)]
    assert any(text in TESTS for text in said), "no input made for it"
