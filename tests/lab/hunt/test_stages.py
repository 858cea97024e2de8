from __future__ import annotations

from collections import Counter

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.hunt.record import CANCELLED, DONE, REFUSED
from sluicegate.lab.hunt.search import STAGES, play_setup, violations_of
from sluicegate.lab.hunt.setup import HuntFault, HuntLoad, Setup
from sluicegate.lab.hunt.stage import sample_us, settled

SMALL = {
    "server": Setup(
        stage="server",
        seed=1,
        span_ms=400,
        loads=(
            HuntLoad(name="shop", criticality="CRITICAL", per_s=300, callers=5),
            HuntLoad(name="bot", criticality="BULK", claims="CRITICAL", per_s=900, callers=20),
            HuntLoad(name="fickle", per_s=300, cancelled_permille=500, timeout_ms=50),
        ),
        faults=(HuntFault(what="slow", from_ms=100, until_ms=200, much=100),),
        knobs={"workers": 4, "shards": 2, "slots": 3, "length_max": 200, "rate_ru": 200},
    ),
    "reads": Setup(
        stage="reads",
        seed=1,
        span_ms=300,
        loads=(
            HuntLoad(name="r", per_s=2_000, keys=5, writes_permille=50, timeout_ms=20),
            HuntLoad(name="s", per_s=500, keys=3, cancelled_permille=300, timeout_ms=4),
        ),
        faults=(HuntFault(what="fail", from_ms=50, until_ms=100, much=500),),
        knobs={"ttl_ms": 20, "waiters_max": 4},
    ),
    "client": Setup(
        stage="client",
        seed=1,
        span_ms=1_000,
        loads=(
            HuntLoad(name="get", per_s=200, cancelled_permille=100),
            HuntLoad(name="put", per_s=50, idempotent=False),
        ),
        faults=(HuntFault(what="fail", from_ms=200, until_ms=400, where="h1"),),
        knobs={"hedge_from": 20},
    ),
    "cluster": Setup(
        stage="cluster",
        seed=1,
        span_ms=1_500,
        loads=(HuntLoad(name="acme", per_s=300),),
        faults=(HuntFault(what="surge", from_ms=500, until_ms=1_000, much=4_000),),
        knobs={"limit_per_s": 100, "nodes": 2},
    ),
    "dispatcher": Setup(
        stage="dispatcher",
        seed=1,
        span_ms=2_000,
        loads=(
            HuntLoad(name="shop", criticality="CRITICAL", per_s=60),
            HuntLoad(name="bot", criticality="BULK", per_s=200, timeout_ms=0),
        ),
        faults=(HuntFault(what="slow", from_ms=500, until_ms=1_500, where="s0", much=20),),
        knobs={"shards": 3, "slots": 4},
    ),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_small_play_breaks_nothing_and_is_the_same_again(stage: str) -> None:
    record = play_setup(SMALL[stage])
    assert violations_of(SMALL[stage]) == []
    assert play_setup(SMALL[stage]).digest == record.digest != ""


def test_a_play_of_the_server_sees_every_fate() -> None:
    record = play_setup(SMALL["server"])
    fates = Counter(unit.status for unit in record.units)
    assert set(fates) == {DONE, REFUSED, CANCELLED}
    assert min(fates.values()) > 10
    reasons = {unit.reason for unit in record.units}
    assert {"deadline", "queue_full"} <= reasons
    assert record.peaks["units in line"] > 5
    assert record.spent


def test_a_play_of_reads_sees_every_fate_and_shares_fetches() -> None:
    record = play_setup(SMALL["reads"])
    fates = Counter(unit.status for unit in record.units)
    assert set(fates) == {DONE, REFUSED, CANCELLED}
    assert {"deadline", "waiters_full"} <= {unit.reason for unit in record.units}
    assert 0 < record.peaks["waiters"] <= record.bounds["waiters"]


def test_a_play_of_the_cluster_holds_each_node_to_its_fuse() -> None:
    record = play_setup(SMALL["cluster"])
    assert record.spent.keys() == record.limits.keys()
    assert len(record.spent) == 2


def test_a_run_that_does_not_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stuck(world: object, setup: object, record: object) -> None:
        await __import__("asyncio").get_running_loop().create_future()

    monkeypatch.setitem(STAGES, "server", stuck)
    (broken,) = violations_of(SMALL["server"])
    assert broken.invariant == "the run ends"
    assert "Deadlock" in broken.sentence


def test_an_error_of_a_policy_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wrong(world: object, setup: object, record: object) -> None:
        raise ZeroDivisionError("by nobody")

    monkeypatch.setitem(STAGES, "server", wrong)
    assert violations_of(SMALL["server"]) == [("no error", "ZeroDivisionError: by nobody")]


def test_a_stage_that_nobody_knows_is_refused() -> None:
    with pytest.raises(BadValue, match="server, reads"):
        play_setup(Setup(stage="stadium", seed=0, span_ms=1, loads=(HuntLoad(name="a"),)))


def test_a_span_is_settled_when_nothing_changed_for_long_enough() -> None:
    load, pause = HuntLoad(name="a"), HuntFault(what="pause", until_ms=2_000)
    calm = Setup(stage="server", seed=0, span_ms=10_000, loads=(load,), faults=(pause,))
    assert settled(calm, 3_000_000, 5_000_000) == (5_000_000, 10_000_000)
    assert settled(calm, 3_000_000, 6_000_000) is None
    bursts = Setup(
        stage="server", seed=0, span_ms=10_000, loads=(HuntLoad(name="a", on_ms=1, off_ms=1),)
    )
    assert settled(bursts, 0, 1) is None
    assert sample_us(calm) == 25_000
