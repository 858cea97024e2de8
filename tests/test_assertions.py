"""Every test asserts: itself, or through a function of its file or of another file of the tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
TESTS = Path(__file__).parent
# Calls that raise if the result is wrong: those of pytest, and functions with a name of a check.
CHECKING = re.compile(r"_?(assert|check|expect)|raises$|warns$|fail$")


def asserts(node: ast.AST) -> bool:
    """Report whether the code contains a statement or call that can fail a test."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assert | ast.Raise):
            return True
        if isinstance(inner, ast.Call):
            function = inner.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            if CHECKING.match(function.id if isinstance(function, ast.Name) else name):
                return True
    return False


class Tree:
    """The parsed files of a test tree, with the names that each file defines or imports."""

    def __init__(self, folder: Path) -> None:
        self.files = {
            path.relative_to(folder.parent): ast.parse(path.read_text(encoding="utf-8"))
            for path in folder.rglob("*.py")
        }
        self._own = {
            path: {
                node.name: node for node in tree.body if isinstance(node, Function | ast.ClassDef)
            }
            for path, tree in self.files.items()
        }
        self._known: dict[tuple[Path, str], bool] = {}
        self._imports = {path: dict(self._imported(tree)) for path, tree in self.files.items()}

    def _imported(self, tree: ast.Module) -> Iterator[tuple[str, tuple[Path, str]]]:
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                path = Path(*node.module.split("."))
                for file in (path.with_suffix(".py"), path / "__init__.py"):
                    if file in self.files:
                        yield from ((a.asname or a.name, (file, a.name)) for a in node.names)

    def checks(self, path: Path, node: ast.AST) -> bool:
        """Report whether the code asserts, or uses a function or class that does."""
        if asserts(node):
            return True
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        return any(self._checks_by_name(path, name) for name in names)

    def _checks_by_name(self, path: Path, name: str) -> bool:
        path, name = self._imports[path].get(name, (path, name))
        node = self._own[path].get(name)
        if node is None:
            return False
        if (path, name) not in self._known:
            self._known[path, name] = False  # for functions that call each other
            self._known[path, name] = self.checks(path, node)
        return self._known[path, name]

    def without_assertion(self) -> list[str]:
        """Return the tests that cannot fail, as `file:line name`."""
        return [
            f"{path}:{node.lineno} {node.name}"
            for path, tree in sorted(self.files.items())
            for part in tree.body
            for node in (part.body if isinstance(part, ast.ClassDef) else [part])
            if isinstance(node, Function) and node.name.startswith("test_")
            if not self.checks(path, node)
        ]


def test_every_test_asserts() -> None:
    assert Tree(TESTS).without_assertion() == []


def test_tests_without_assertion_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "shared.py").write_text(
        "def verify(one):\n    assert one\n\n\ndef build():\n    return 1\n", encoding="utf-8"
    )
    (folder / "test_a.py").write_text(
        "from tests.shared import build, verify as held\n\n\n"
        "def test_empty():\n    build()\n\n\n"
        "def test_through_import():\n    held(build())\n\n\n"
        "def test_of_raises():\n    with pytest.raises(ValueError):\n        build()\n",
        encoding="utf-8",
    )
    assert Tree(folder).without_assertion() == ["tests/test_a.py:4 test_empty"]
