"""Shapes of services on real gunicorn with threads: alone, with `protect`, behind `serve`.

Alone, gunicorn has as many threads as slots. With `protect` it has four times as many, so that the
limit acts before the threads run out; a request takes a slot or is rejected. Behind
`sluicegate resilience serve` the threads are the slots, and the queue is in front of them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
    Load,
    Results,
    assert_serves_what_matters,
    load_of,
    run_on_time,
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


def gunicorn(folder: Path, app: str, threads: int, **environment: object) -> Iterator[int]:
    flags = ["--worker-class", "gthread", "--threads", str(threads), "--bind", "127.0.0.1:{port}"]
    command = ["gunicorn", *flags, "--graceful-timeout", "1", f"{APP}:{app}"]
    return serving(folder, f"gunicorn-{app}", command, environment)


def front(folder: Path, threads: int) -> Iterator[int]:
    settings = folder / "resilience.toml"
    settings.write_text("\n".join(["[callers]", *(f'{name} = "critical"' for name in CALLERS)]))
    command = ["sluicegate.cli", "resilience", "serve", f"{APP}:app", "--threads", str(threads)]
    command += ["--listen", "127.0.0.1:{port}", "--settings", str(settings), "--drain-s", "1"]
    command += ["--trusted-proxies", "127.0.0.0/8", "--caller-header", CALLER]
    return serving(folder, "serve", command, {})


def play(folder: Path, load: Load, slots: int, health: dict[str, list[float]]) -> Results:
    """Play with all three, and watch the health of those that `health` names."""
    with ExitStack() as servers:
        ended = folder / "ended"
        ports = {
            "plain": servers.enter_context(gunicorn(folder, "app", slots, ZOO_ENDED=ended)),
            "protect": servers.enter_context(
                gunicorn(
                    folder, "protected", THREADS_TIMES * slots, ZOO_SLOTS=slots, ZOO_LIMIT=slots
                )
            ),
            "serve": servers.enter_context(front(folder, slots)),
        }
        candidates: dict[str, Candidate] = {
            name: (http_caller(port), lambda: ended.stat().st_size) for name, port in ports.items()
        }

        async def story() -> Results:
            found, *times = await asyncio.gather(
                side_by_side(load, candidates),
                *(watch_health(ports[name], load.span_s) for name in health),
            )
            health.update(zip(health, times, strict=True))
            return found

        return run_on_time(story)


@pytest.mark.parametrize("seed", SEEDS)
def test_io_bound_threads_protected_lose_nothing(tmp_path: Path, seed: int) -> None:
    load = load_of("service: io 500 ms", seed)
    found = play(tmp_path, load, ORDINARY_SLOTS, {})
    assert {name: one.share() for name, one in found.items()} == dict.fromkeys(found, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_overloaded_threads_serve_what_matters(tmp_path: Path, seed: int) -> None:
    load = load_of(OVERLOADED[0], seed, OVERLOADED[1])
    health: dict[str, list[float]] = {"plain": [], "serve": []}
    found = play(tmp_path, load, load.shape.slots, health)
    assert_serves_what_matters(found["serve"], found["plain"])
    assert max(health["serve"]) < load.patience_s < max(health["plain"])
    # Without a queue it can only keep slots for CRITICAL, and those take the others' too.
    ours = found["protect"]
    assert ours.useful >= USEFUL_MIN * found["plain"].ended
    critical = ours.share(Criticality.CRITICAL)
    assert critical > max(COLLAPSED_MAX, *(ours.share(of) for of in Criticality if of))
