"""Shapes of services on real gunicorn with threads: alone, with `protect`, behind `serve`.

Alone, gunicorn has as many threads as slots. With `protect` it has four times as many, so that the
limit acts before the threads run out; a request takes a slot or is rejected. Behind
`sluicegate resilience serve` the threads are the slots, and the queue is in front of them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from sluicegate.contracts.criticality import Criticality
from tests.engines.child import Child, free_port, until
from tests.prove.zoo.http import CALLER, fetch, http_caller, watch_health
from tests.prove.zoo.load import (
    COLLAPSED_MAX,
    SEEDS,
    USEFUL_MIN,
    Candidate,
    Results,
    assert_loses_nothing,
    assert_serves_what_matters,
    load_of,
    prove,
    side_by_side,
)
from tests.prove.zoo.wsgi_service import CALLERS

pytestmark = pytest.mark.prove
pytest.importorskip("gunicorn")

APP: Final = "tests.prove.zoo.wsgi_service"
THREADS_TIMES: Final = 4
ORDINARY_SLOTS: Final = 64  # three times what is in flight at 40 requests/s of 500 ms
OVERLOADED: Final = ("service: 2x, least patience", 0.35)


@contextmanager
def serving(
    folder: Path, name: str, command: list[str], environment: Mapping[str, object]
) -> Iterator[int]:
    """Serve until the end of the block; the port."""
    port = free_port("127.0.0.1")
    words = [sys.executable, "-m", *(word.format(port=port) for word in command)]
    variables = [f"{key}={value}" for key, value in environment.items()]
    child = Child(name, ["env", *variables, *words], folder / f"{name}.log")
    try:
        until(lambda: asyncio.run(fetch(port, "/healthz", {})), name, children=[child])
        yield port
    finally:
        child.stop()


def gunicorn(
    folder: Path, app: str, threads: int, **environment: object
) -> AbstractContextManager[int]:
    flags = ["--worker-class", "gthread", "--threads", str(threads), "--bind", "127.0.0.1:{port}"]
    command = ["gunicorn", *flags, "--graceful-timeout", "1", f"{APP}:{app}"]
    return serving(folder, f"gunicorn-{app}", command, environment)


def front(folder: Path, threads: int) -> AbstractContextManager[int]:
    settings = folder / "resilience.toml"
    settings.write_text("\n".join(["[callers]", *(f'{name} = "critical"' for name in CALLERS)]))
    command = ["sluicegate.cli", "resilience", "serve", f"{APP}:app", "--threads", str(threads)]
    command += ["--listen", "127.0.0.1:{port}", "--settings", str(settings), "--drain-s", "1"]
    command += ["--trusted-proxies", "127.0.0.0/8", "--caller-header", CALLER]
    return serving(folder, "serve", command, {})


@contextmanager
def candidates_of(folder: Path, slots: int) -> Iterator[dict[str, int]]:
    """Serve all three for a block; the port of each."""
    ended = folder / "ended"
    with ExitStack() as servers:
        enter = servers.enter_context
        protect = gunicorn(
            folder, "protected", THREADS_TIMES * slots, ZOO_SLOTS=slots, ZOO_LIMIT=slots
        )
        yield {
            "plain": enter(gunicorn(folder, "app", slots, ZOO_ENDED=ended)),
            "protect": enter(protect),
            "ours": enter(front(folder, slots)),
        }


def candidate(folder: Path, port: int) -> Candidate:
    """Return what sends requests there."""
    return Candidate(http_caller(port), lambda: (folder / "ended").stat().st_size)


@pytest.mark.parametrize("seed", SEEDS)
def test_io_bound_threads_protected_lose_nothing(tmp_path: Path, seed: int) -> None:
    load = load_of("service: io 500 ms", 1, seed)
    with candidates_of(tmp_path, ORDINARY_SLOTS) as ports:
        candidates = {name: candidate(tmp_path, port) for name, port in ports.items()}
        prove(lambda: side_by_side(load, candidates), assert_loses_nothing)


@pytest.mark.parametrize("seed", SEEDS)
def test_overloaded_threads_serve_what_matters(tmp_path: Path, seed: int) -> None:
    load = load_of(*OVERLOADED, seed=seed)
    health: dict[str, list[float]] = {}

    def judge(found: Results) -> None:
        assert_serves_what_matters(found)
        assert max(health["ours"]) < load.patience_s < max(health["plain"])
        # Without a queue it can only keep slots for CRITICAL, and those take the others' too.
        protect = found["protect"]
        assert protect.useful >= USEFUL_MIN * found["plain"].ended
        critical = protect.share(Criticality.CRITICAL)
        assert critical > max(COLLAPSED_MAX, *(protect.share(of) for of in Criticality if of))

    with candidates_of(tmp_path, load.shape.slots) as ports:
        candidates = {name: candidate(tmp_path, port) for name, port in ports.items()}

        async def story() -> Results:
            found, health["plain"], health["ours"] = await asyncio.gather(
                side_by_side(load, candidates),
                watch_health(ports["plain"], load.span_s),
                watch_health(ports["ours"], load.span_s),
            )
            return found

        prove(story, judge)
