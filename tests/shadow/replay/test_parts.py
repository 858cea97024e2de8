"""Work is shared by processes only where that changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.checks import CheckRequest, Override
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.shadow.gate import JudgeSettings, ShadowJudge
from sluicegate.shadow.pair_run import BLOCK
from sluicegate.shadow.partition import distribute, largest_share
from sluicegate.shadow.replay import replay
from sluicegate.shadow.report.report import as_json
from sluicegate.shadow.side import Query
from sluicegate.shadow.workers import parse_mesh_request, plain
from tests.shadow.replay.captures import captured, check, envoy, limit, mesh, native, rules
from tests.shadow.synthetic import synthetic_traffic

TENANT = {
    "key": "tenant",
    "descriptors": [{"key": "path", "rate_limit": {"unit": "second", "requests_per_unit": 2}}],
}


def book(count: int) -> dict[str, bytes]:
    return {
        **native(
            limit("play", count, resource_path="/api/v1/playback"),
            limit("search", count * 2, resource_path="/api/v1/search", algorithm="sliding_window"),
            limit("hour", count * 9, 3600, resource_path="/api/v1/search"),
            limit("orders", count, resource_path="/users/{id}/orders", algorithm="gcra"),
            limit("try", 1, resource_path="/api/v1/logs", mode="shadow"),
        ),
        **envoy(TENANT),
        "made.yaml": b'{"domain": "made", "descriptors": [{"key": "tenant", "rate_limit": '
        b'{"unit": "second", "requests_per_unit": %d}}]}' % count,
    }


def test_any_number_of_workers_makes_the_same_report_to_the_byte() -> None:
    made = synthetic_traffic(8_000, seed=5, entities=40, mesh=1_000, refused=200, per_s=500)
    judges = [
        ShadowJudge(lambda: made, JudgeSettings(pinned=["user-3"], workers=workers))
        for workers in (1, 2, 3)
    ]
    one, two, three = [as_json(judge.judge(book(9), book(6)).report) for judge in judges]
    assert one == two
    assert one == three
    assert '"newly_refused": 0' in one
    assert replay(made, rules(book(9)), rules(book(6)), workers=2).processes == 2


def test_a_rule_that_ties_all_together_is_replayed_in_one_process_and_says_so() -> None:
    made = synthetic_traffic(2_000, seed=5, entities=40)
    tied = book(9) | native(limit("everybody", 50, per="resource"), limit("each", 9))
    replayed = replay(made, rules(book(9)), rules(tied), workers=3)
    assert replayed.processes == 1
    assert "everybody" in replayed.alone
    assert replay(made, rules(book(9)), rules(book(9)), workers=1).alone == ""


def test_what_the_mesh_remembers_of_all_is_replayed_in_one_process() -> None:
    made = synthetic_traffic(500, seed=5, entities=40)
    settings = MeshSettings(semantics=Semantics.ENVOY, local_cache_max=10)
    current = rules(book(9), semantics="envoy")
    assert "local_cache_max" in replay(made, current, current, mesh=settings, workers=2).alone


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=30),
    st.integers(1, 4),
)
def test_no_group_is_in_two_parts_and_no_ask_is_left_out(numbers: list[int], parts: int) -> None:
    groups = [numbers.index(number) for number in numbers]
    made = distribute(groups, [3] * len(groups), parts)
    assert sorted(query for queries in made for query in queries) == [*range(len(groups))]
    where = {query: part for part, queries in enumerate(made) for query in queries}
    assert all(where[query] == where[group] for query, group in enumerate(groups))
    assert all(made)
    most = max(groups.count(group) for group in groups)
    assert largest_share(groups, [3] * len(groups)) == most / len(groups)


def test_asks_travel_as_they_are() -> None:
    several: list[Query] = [
        check("ann", "/a", weight=3, claim=Criticality.BULK),
        CheckRequest("bob", "/b", headers={"x-client-type": "tv"}),
        mesh([("a", "1"), ("b", "2")], [("c", "3")], hits=4, own=2, override=Override(7, 2)),
        mesh([("a", "1")]),
    ]
    for query in several:
        again = parse_mesh_request(plain(query))
        assert plain(again) == plain(query)
        assert type(again) is type(query)


def test_progress_is_told_until_all_is_done() -> None:
    query = check("ann")
    made = captured([(0.001 * at, query) for at in range(BLOCK + 10)])
    reports: list[tuple[int, int]] = []
    replay(
        made, rules({}), rules(book(3)), progress=lambda done, total: reports.append((done, total))
    )
    assert reports == [(BLOCK, BLOCK + 10), (BLOCK + 10, BLOCK + 10)]


def test_progress_of_several_processes_ends_at_all() -> None:
    made = synthetic_traffic(1_000, seed=5, entities=40)
    reports: list[int] = []
    replay(
        made,
        rules(book(9)),
        rules(book(6)),
        workers=2,
        progress=lambda done, total: reports.append(done),
    )
    assert len(reports) == 2
    assert reports[-1] == 1_000


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_ends_it_cleanly(workers: int) -> None:
    program = textwrap.dedent(f"""
        import multiprocessing, os, signal
        from tests.shadow.synthetic import synthetic_traffic
        from sluicegate.shadow.replay import replay
        from tests.shadow.replay.captures import limit, native, rules

        if __name__ == "__main__":
            made = synthetic_traffic(30_000, seed=5, entities=40)
            book = rules(native(limit("play", 5)))
            try:
                replay(
                    made,
                    book,
                    book,
                    workers={workers},
                    progress=lambda done, total: os.kill(os.getpid(), signal.SIGINT),
                )
            except KeyboardInterrupt:
                print("ended", len(multiprocessing.active_children()))
    """)
    ran = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert ran.stdout == "ended 0\n", ran.stderr
    assert ran.returncode == 0


def test_the_number_of_workers_is_bounded() -> None:
    with pytest.raises(BadValue, match="workers"):
        replay(captured([]), rules({}), rules({}), workers=0)
