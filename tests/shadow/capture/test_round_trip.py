from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import settings as settings_of

from sluicegate.contracts.checks import COST_UNSET, CheckRequest, Descriptor, MeshRequest, Override
from sluicegate.contracts.criticality import Criticality
from sluicegate.shadow.capture.log import CaptureLog
from sluicegate.shadow.capture.reader import read_capture
from sluicegate.shadow.redaction import Vocabulary, token_text
from sluicegate.shadow.traffic import UNKNOWN
from sluicegate.testing import START_US, HandClock
from tests.shadow.capture.world import (
    KEY,
    REQUESTS,
    Request,
    expected,
    key_of,
    rows_of,
    settings,
    vocabulary,
    written,
)
from tests.shadow.synthetic import synthetic_traffic


@settings_of(max_examples=50)
@given(REQUESTS)
def test_what_was_written_is_read_again_in_order_of_time(requests: list[Request]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "capture")
        written(folder, [*requests, (START_US, 0, CheckRequest("someone", "/"))])
        read = read_capture(folder, vocabulary=vocabulary([query for _, _, query in requests]))
    rows = rows_of(read.traffic)
    assert [at_us for at_us, _, _ in rows] == sorted(at_us for at_us, _, _ in rows)
    last = (START_US, 0, (token_text(KEY.token("someone")), "/", 1, -1, ()))
    assert Counter(rows) == Counter([*expected(requests), last])
    assert (read.traffic.lost, read.damage, read.redacted) == (0, (), True)
    assert len(set(map(id, read.traffic.queries))) == len(read.traffic.entities)


def test_a_large_capture_comes_back_as_it_was(tmp_path: Path) -> None:
    made = synthetic_traffic(20_000, entities=300, mesh=3_000, refused=500)
    requests: list[Request] = [
        (at_us, outcome, made.queries[number])
        for at_us, outcome, number in zip(made.at_us, made.outcomes, made.which, strict=True)
    ]
    written(tmp_path, requests, batch=999, queries_max=200)
    read = read_capture(tmp_path, vocabulary=vocabulary(made.queries))
    assert rows_of(read.traffic) == rows_of(made)
    assert read.segments > 3
    named = dict(zip(map(key_of, read.traffic.queries), read.traffic.entities, strict=True))
    assert named == dict(zip(map(key_of, made.queries), made.entities, strict=True))


def test_an_ask_is_written_once_a_segment_however_often_it_comes(tmp_path: Path) -> None:
    query = CheckRequest("ann", "/a")
    written(tmp_path / "few", [(START_US + n, 0, query) for n in range(10)])
    written(tmp_path / "many", [(START_US + n, 0, query) for n in range(20_000)], batch=8_000)
    (few,) = (tmp_path / "few").glob("*.sgc")
    (many,) = (tmp_path / "many").glob("*.sgc")
    assert many.stat().st_size < few.stat().st_size + 2_000


def test_without_a_vocabulary_the_same_value_has_the_same_token(tmp_path: Path) -> None:
    written(tmp_path, [(1, 0, CheckRequest("ann", "/a/ann")), (2, 0, CheckRequest("ann", "/b"))])
    first, second = read_capture(tmp_path, key=KEY).traffic.queries
    assert isinstance(first, CheckRequest)
    assert isinstance(second, CheckRequest)
    assert first.user_id == second.user_id == token_text(KEY.token("ann"))
    assert first.resource_path == f"/{token_text(KEY.token('a'))}/{first.user_id}"


def test_a_query_is_never_kept_and_makes_no_new_ask(tmp_path: Path) -> None:
    queries = [CheckRequest("ann", f"/a//b/?token={n}") for n in range(100)]
    written(tmp_path, [(n, 0, query) for n, query in enumerate(queries)])
    read = read_capture(tmp_path, vocabulary=Vocabulary(["ann", "a", "b"], key=KEY))
    (query,) = read.traffic.queries
    assert isinstance(query, CheckRequest)
    assert (query.user_id, query.resource_path) == ("ann", "/a/b")
    assert len(read.traffic) == 100


def test_claims_and_headers_come_back(tmp_path: Path) -> None:
    headers = {"x-client-type": "tv", "authorization": "Bearer x", "x-other": "y"}
    query = CheckRequest("ann", "/a", headers=headers, cost=7, priority=Criticality.CRITICAL)
    written(tmp_path, [(1, 1, query)])
    read = read_capture(tmp_path, vocabulary=Vocabulary(["ann", "a", "tv"], key=KEY))
    (check,) = read.traffic.queries
    assert isinstance(check, CheckRequest)
    assert check.headers == {"x-client-type": "tv"}
    assert (check.cost, check.priority) == (7, Criticality.CRITICAL)


def test_what_a_descriptor_brings_along_comes_back(tmp_path: Path) -> None:
    own = Descriptor([("a", "b"), ("c", "d")], override=Override(500, 3), cost=0)
    plain = Descriptor([("a", "b")])
    written(tmp_path, [(1, -1, MeshRequest("shop", [own, plain], 7))])
    read = read_capture(tmp_path, vocabulary=Vocabulary(["b", "d"], key=KEY))
    (query,) = read.traffic.queries
    assert isinstance(query, MeshRequest)
    assert (query.domain, query.cost, list(read.traffic.outcomes)) == ("shop", 7, [UNKNOWN])
    first, second = query.descriptors
    assert first.override is not None
    assert (first.override.requests_per_unit, first.override.unit, first.cost) == (500, 3, 0)
    assert list(first.entries) == [("a", "b"), ("c", "d")]
    assert (second.override, second.cost) == (None, COST_UNSET)


def test_globs_that_cannot_match_what_was_redacted_are_told(tmp_path: Path) -> None:
    query = MeshRequest(
        "shop", [Descriptor([("path", "/api/7"), ("tenant", "acme"), ("kind", "x")])]
    )
    written(tmp_path, [(1, 0, query)], plain_names=("path",))
    globs = [("path", "/api/*"), ("tenant", "ac*"), ("kind", "*x"), ("agent", "curl*")]
    read = read_capture(tmp_path, vocabulary=Vocabulary(["x"], key=KEY, globs=globs))
    assert read.unmatched_globs == (("tenant", "ac*"),)


def test_several_workers_are_read_as_one(tmp_path: Path) -> None:
    query = CheckRequest("ann", "/a")
    clock = HandClock()
    logs = [CaptureLog(settings(tmp_path), KEY, clock=clock) for _ in range(3)]
    for turn in range(30):
        logs[turn % 3].write([(START_US + turn, turn % 2, key_of(query))])
    for log in logs:
        log.close()
    read = read_capture(tmp_path, key=KEY)
    assert list(read.traffic.at_us) == [START_US + turn for turn in range(30)]
    assert list(read.traffic.outcomes) == [turn % 2 for turn in range(30)]
    assert (len(read.traffic.queries), read.segments) == (1, 3)


def test_a_span_is_read_from_its_beginning_and_before_its_end(tmp_path: Path) -> None:
    written(tmp_path, [(n, 0, CheckRequest("ann", "/a")) for n in range(10)], batch=3)
    read = read_capture(tmp_path, key=KEY, since_us=2, until_us=7)
    assert list(read.traffic.at_us) == [2, 3, 4, 5, 6]
    assert read.traffic.lost == 0


def test_what_is_beyond_a_bound_is_lost_and_told(tmp_path: Path) -> None:
    written(tmp_path, [(n, 0, CheckRequest(f"user-{n % 4}", "/a")) for n in range(20)])
    read = read_capture(tmp_path, key=KEY, requests_max=15)
    assert (len(read.traffic), read.traffic.lost) == (15, 5)
    read = read_capture(tmp_path, key=KEY, queries_max=3)
    assert (len(read.traffic), read.traffic.lost) == (15, 5)


def test_progress_is_told_to_the_end(tmp_path: Path) -> None:
    made = [(n, 0, CheckRequest(f"user-{n}", "/a")) for n in range(20)]
    written(tmp_path, made, queries_max=5)
    reports: list[tuple[int, int]] = []
    read_capture(tmp_path, key=KEY, progress=lambda done, total: reports.append((done, total)))
    assert len(reports) == 4
    assert (
        reports[-1][0]
        == reports[-1][1]
        == sum(path.stat().st_size for path in tmp_path.glob("*.sgc"))
    )
