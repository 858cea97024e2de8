"""Every benchmark imports, and runs at a tiny size; what it measures there means nothing."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from benchmarks.codecs import ours_h2, reads

ROOT: Final = Path(__file__).resolve().parent.parent
NAMES: Final = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
RUN_S_MAX: Final = 120.0  # what still runs then has started, and is ended
# Parts of the others, and comparisons with programs that have to be built first.
NO_PROGRAMS: Final = {
    "__init__", "grpcio_server", "image_peers", "peers", "pubsub_peer", "pubsub_send", "rounds",
    "service_peers",
}  # fmt: skip
# Runs a module with other constants, and one round instead of several.
DRIVER: Final = """
import ast, sys
from pathlib import Path
from benchmarks import rounds

path, constants, sys.argv[1:] = sys.argv[1], ast.literal_eval(sys.argv[2]), sys.argv[3:]
rounds.interleaved.__kwdefaults__["rounds"] = 1
tree = ast.parse(Path(path).read_text(encoding="utf-8"))
for node in tree.body:
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name) and target.id in constants:
            node.value = ast.parse(repr(constants.pop(target.id)), mode="eval").body
imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
at = tree.body.index(imports[-1]) + 1
for name in {alias.name for node in imports for alias in node.names} & {*constants}:
    tree.body.insert(at, ast.parse(f"{name} = {constants.pop(name)!r}").body[0])
if constants:
    raise LookupError(f"{path} has no constants {sorted(constants)}")
sys.argv[0] = __file__ = path
exec(compile(ast.fix_missing_locations(tree), path, "exec"))
"""


class Small(NamedTuple):
    """Constants of a module, and arguments, with which it takes seconds."""

    constants: dict[str, Any] = {}  # noqa: RUF012 - never changed
    arguments: tuple[str, ...] = ()


SMALL: Final[dict[str, Small]] = {
    "account_limiters": Small({"NODES": 20, "ACCOUNTS": 200, "ACTIVE": (2, 20), "INTERVALS": 1}),
    "accuracy": Small(
        {"WINDOWS": 3, "KEYS": 5, "COST_KEYS": 50, "CELLS": (1, 2, 10)}, ("--seeds", "1")
    ),
    "asgi": Small({"REQUESTS": 20, "ROUNDS": 1}),
    "bulk_upload": Small({"ALONE": 1}, ("--rows", "2000", "--seconds", "0.3")),
    "capture": Small({"CALLS": 500, "REQUESTS": 2_000}),
    "client": Small({}, ("--calls", "3")),
    "codecs": Small({"STREAMS": 160, "MESSAGES": 200}),
    "console": Small(
        {"OPEN_PAGES": 2, "NODES": 5, "RULES": 2_000}, ("--seconds", "0.5", "--rounds", "1")
    ),
    "decision": Small({"CALLS": 200, "KEYS": 500, "KEYS_HUGE": 1_000}),
    "dispatcher": Small(
        {"REQUESTS": 50, "KEYS": 500, "P99_CALLS": 200}, ("--rounds", "1", "--only", "chain")
    ),
    "doors": Small({"ROUNDS": 1, "VERIFIED": 20}, ("--seconds", "0.2")),
    "engines": Small({"ROUNDS": 1, "ROWS": 500}),
    "image_processing": Small({"ROUNDS": 1, "ORIGINALS": 1}, ("0.05",)),
    "image_service": Small(
        {"HOT_CALLS": 100, "CLIENTS": 2, "WITHOUT_CALLS": 5}, ("--urls", "20", "--calls", "50")
    ),
    "kernels": Small({"CALL_S": 0.0005}),
    "lab": Small({"ROUNDS": 1, "SPANS_US": {2: 2_000_000}}),
    "leases": Small({"ROUNDS": 1, "TASKS": 4}, ("--seconds", "0.2")),
    "light_lock": Small({"CALLS": 500}),
    "memory": Small({"KEYS": 2_000, "ROUNDS": 1}),
    "mesh_rules": Small({"CALLS": 500, "FILE_RULES": 200}, ("--rules", "500", "--rounds", "1")),
    "neighbours": Small({"ROUNDS": 1}, ("--seconds", "0.1")),
    "node_reports": Small({"ROUNDS": 1}, ("--seconds", "0.02")),
    "outage": Small({"OUTAGE_S": 1.0}, ("--rounds", "1")),
    "policies": Small({"REQUESTS": 50, "SINGLE": 200, "ROUNDS": 1}),
    "pubsub": Small({"SUBSCRIBERS": 20, "IDLE": 20, "ROUNDS": 1}, ("--seconds", "0.2")),
    "pubsub_refusals": Small({"ATTEMPTS": 300, "ROUNDS": 1}),
    "redis_client": Small({"TASKS": 4}, ("--calls", "40")),
    "redis_store": Small({}, ("--calls", "40")),
    "replay": Small({}, ("--requests", "2000", "--entities", "100")),
    "repository": Small({"FILES": 20, "ROUNDS": 2}),
    "resilience": Small({"CALLS": 20}),
    "resilience_client": Small({"CALLS": 20}),
    "resilience_hosts": Small({"TURN_S": 1.0, "SPAN_S": 4.0}, ("slow",)),
    "resilience_peers": Small({}, ("--seconds", "1")),
    "resilience_server": Small({"SPAN_S": 0.3}),
    "resource_rules": Small({"RULES_A_FILE": 100, "ASKS": 500}, ("--rules", "500")),
    "resp_door": Small({"COUNTS": {1: 600, 16: 1_600}}, ("--rounds", "1")),
    "rule_fleet": Small({"FILES": 2, "RULES_A_FILE": 5}, ("--nodes", "2", "--commits", "1")),
    "snapshot": Small({"ASKS": 200, "CHANGES": 2, "ROUNDS": 1, "LIMITS": 10}, ("--rules", "2000")),
    "traces": Small({"ROUNDS": 1, "BATCH": 10, "BATCHES": 2}),
}


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_imports(name: str) -> None:
    try:
        benchmark = importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"benchmarks", "sluicegate", "tests"}:
            raise
        pytest.skip(f"there is no {error.name}; get it: make check, or make .venv-compiled/.bench")
    assert benchmark.__doc__


def test_codecs_benchmark_answers_every_stream() -> None:
    run = ours_h2(reads())
    assert run() > 0


@pytest.mark.prove
@pytest.mark.parametrize("name", sorted({*NAMES} - NO_PROGRAMS))
def test_benchmark_runs_at_tiny_size(name: str) -> None:
    """Targets may be missed: the exit code is 1 then, and nothing is raised."""
    small = SMALL.get(name, Small())
    path = str(ROOT / "benchmarks" / f"{name}.py")
    run = subprocess.Popen(
        [sys.executable, "-c", DRIVER, path, repr(small.constants), *small.arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # its servers end with it
    )
    try:
        _, errors = run.communicate(timeout=RUN_S_MAX)
        assert run.returncode in (0, 1), errors[-2_000:]
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        _, errors = run.communicate()
    assert "Traceback" not in errors, errors[-2_000:]


def test_benchmarks_name_the_command_that_works() -> None:
    """As a file a benchmark does not find the package of the others."""
    texts = [path.read_text("utf-8") for path in (ROOT / "benchmarks").glob("*.py")]
    assert [text for text in texts if "python benchmarks/" in text] == []
