"""The tree keeps what ARCHITECTURE.md and STYLE promise: guess a path and it is there."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import sluicegate

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "sluicegate"
LAYERS = {
    "apps",
    "command_line",
    "service",
    "client",
    "cluster",
    "contracts",
    "doors",
    "kernels",
    "lab",
    "limits",
    "policies",
    "protos",
    "resilience",
    "rules",
    "shadow",
    "stores",
    "telemetry",
    "testing",
    "wire",
}
# Parts of kernels rather than kernels: no essay on an algorithm, no page, no test of their own.
KERNEL_PARTS = {"bounds", "native", "pace", "verdict"}
KERNELS = sorted(
    path.stem
    for path in (SRC / "kernels").glob("*.py")
    if path.stem not in KERNEL_PARTS | {"__init__"}
)
MODULES = sorted(SRC.rglob("*.py"))
TOO_VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "tools", "base"}
# Of frameworks, each in the module that is named for it; and of two public packages.
SHARED_CLASSES = {"Client", "LimitExceeded", "LimitMiddleware"}
# Words of the field that happen to end so.
FIELD_NOUNS = {
    "audit_ring",
    "binding",
    "coalescing",
    "framing",
    "hash_ring",
    "lending",
    "quota_tuning",
    "space_saving",
    "sampling",
    "streaming",
    "tracing",
    "tracking",
}
PARTICIPLES = {"asked", "gone", "held", "kept", "known", "made", "said", "seen", "told", "tried"}
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_the_layers_are_those_of_the_design_and_no_others() -> None:
    folders = {path.name for path in SRC.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders == LAYERS


class ModuleFacts(NamedTuple):
    """What these tests want to know of a file."""

    essay: str
    imports: frozenset[tuple[str, str]]  # a module, and what of it; "" for the whole
    public_classes: tuple[str, ...]
    functions: frozenset[str]


@cache
def facts_of(path: Path) -> ModuleFacts:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports: set[tuple[str, str]] = set()
    functions: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imports.update((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.add(node.name)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    return ModuleFacts(
        ast.get_docstring(tree) or "",
        frozenset(imports),
        tuple(name for name in classes if name[0] != "_"),
        frozenset(functions),
    )


def written() -> Iterator[tuple[Path, ModuleFacts]]:
    """Each module that was not generated."""
    for path in MODULES:
        if "_pb2" not in path.name:
            yield path, facts_of(path)


def test_no_module_is_imported_by_what_it_imports_itself() -> None:
    """Imports inside functions and for types alone included: they only hide a circle."""
    names = {
        path: ".".join(path.relative_to(SRC.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in MODULES
    }
    modules = set(names.values())
    imports: dict[str, set[str]] = {}
    for path, facts in written():
        found = imports.setdefault(names[path], set())
        for module, member in facts.imports:
            inner = f"{module}.{member}"
            found.add(inner if inner in modules else module)
    TopologicalSorter(imports).prepare()  # a CycleError names the circle


def test_a_public_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for path, facts in written():
        for name in facts.public_classes:
            places.setdefault(name, []).append(str(path.relative_to(SRC)))
    shared = {name for name, found in places.items() if len(found) > 1}
    assert shared == SHARED_CLASSES, {name: places[name] for name in shared ^ SHARED_CLASSES}


def test_modules_are_named_for_what_they_hold() -> None:
    gerunds = {path.stem for path in MODULES if path.stem.endswith("ing")}
    assert gerunds <= FIELD_NOUNS, gerunds - FIELD_NOUNS


def test_functions_say_what_they_do_and_not_what_was_done() -> None:
    found = {
        f"{path.relative_to(SRC)}: {name}"
        for path, facts in written()
        for name in facts.functions
        if name.lstrip("_") in PARTICIPLES
    }
    assert not found


def test_only_system_may_know_the_time_and_the_contract_covers_all_others() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (clock,) = [one for one in contracts if "clock" in one["name"]]
    (kernels,) = [one for one in contracts if "Kernels" in one["name"]]
    covered = set(clock["source_modules"]) | set(kernels["source_modules"])
    modules = {
        path.stem
        for path in SRC.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {f"sluicegate.{name}" for name in modules - {"__init__", "system"}} == covered


def test_the_glossary_names_a_file_for_each_word() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    words = [row for row in rows if not row.startswith(("| word", "|---"))]
    assert len(words) > 70
    for row in words:
        (target,) = LINK.findall(row)
        assert (ROOT / "docs" / target).is_file(), row
    names = [row.split("|")[1].strip() for row in words]
    assert len(names) == len(set(names))


def test_no_file_has_the_name_that_the_product_had_before() -> None:
    before = b"head" + b"gate"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("this is no git checkout: run it in one")
    for name in filter(None, listed.stdout.split(b"\0")):
        assert before not in name.lower()
        path = ROOT / name.decode()
        assert not path.is_file() or before not in path.read_bytes().lower(), path


def test_no_folder_stands_at_the_root_that_the_walk_does_not_know() -> None:
    # What the commands make is not part of the tree: `sluicegate kv` without flags, say, its data.
    made = {line.rstrip("/") for line in (ROOT / ".gitignore").read_text("utf-8").split()}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."}
    assert folders - made == {"benchmarks", "clients", "deploy", "docs", "examples", "src", "tests"}


def test_every_module_opens_with_its_law_and_has_a_telling_name() -> None:
    silent = [path for path in MODULES if not facts_of(path).essay]
    assert not silent, "these say nothing about themselves"
    assert not {path for path in MODULES if path.stem in TOO_VAGUE}
    packages = [path for path in MODULES if path.name == "__init__.py" and path.parent != SRC]
    short = [path for path in packages if len(facts_of(path).essay.split()) < 15]
    assert not short, "a package states what may live in it"


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_an_essay_a_test_file_and_a_page_that_ends_with_its_file(
    name: str,
) -> None:
    essay = facts_of(SRC / "kernels" / f"{name}.py").essay
    assert len(essay.split()) >= 100, "an algorithm's file opens with an essay"
    assert "Cost" in essay
    assert "Bounds" in essay or "bound" in essay
    assert (ROOT / "tests" / "kernels" / f"test_{name}.py").is_file()
    page = (ROOT / "docs" / "concepts" / f"{name}.md").read_text(encoding="utf-8")
    last = page.rstrip().splitlines()[-1]
    assert last == f"File: [`kernels/{name}.py`](../../src/sluicegate/kernels/{name}.py)"


def test_no_page_and_no_kernel_test_has_lost_its_kernel() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "concepts").glob("*.md")}
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests/kernels").glob("test_*.py")}
    assert pages - set(KERNELS) == set()
    assert tests - set(KERNELS) == set()


def test_the_index_of_concepts_names_every_kernel_and_only_files_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    index = text[text.index("## Index") :]
    rows = [line for line in index.splitlines() if line.startswith("| ")][1:]
    assert rows == sorted(rows, key=str.casefold)
    for name in KERNELS:
        assert f"src/sluicegate/kernels/{name}.py" in index, f"{name} is not in the index"


@pytest.mark.parametrize(
    "page",
    sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_link_in_a_page_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_public_names_are_sorted_and_there() -> None:
    assert sluicegate.__all__ == sorted(sluicegate.__all__)
    for name in sluicegate.__all__:
        assert hasattr(sluicegate, name)


def test_every_decision_page_is_numbered_and_says_why() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [int(page.name[:4]) for page in pages]
    assert numbers == list(range(1, len(pages) + 1))
    for page in pages:
        assert "## Why" in page.read_text(encoding="utf-8"), page.name
