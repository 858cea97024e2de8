from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sluicegate.contracts.checks import CheckRequest, MeshRequest
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.shadow.capture.key import open_key
from sluicegate.shadow.capture.reader import read_capture
from sluicegate.shadow.imports.envoy import EnvoyFields, import_envoy
from sluicegate.shadow.imports.importer import collect, store
from sluicegate.shadow.imports.rows import LINE_CHARS_MAX, BadRow, ImportRow
from sluicegate.shadow.imports.tables import import_csv, import_jsonl
from sluicegate.shadow.redaction import Vocabulary
from sluicegate.shadow.traffic import ADMITTED, ALL, REFUSED, UNKNOWN
from sluicegate.testing import START_US, HandClock
from tests.shadow.capture.world import KEY, settings, unpacked

AT_US = 1_893_456_000_000_000  # 2030-01-01


def file(folder: Path, *lines: object, name: str = "log") -> str:
    path = folder / name
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    path.write_text(text)
    return str(path)


def check_of(row: ImportRow) -> CheckRequest:
    assert isinstance(row.query, CheckRequest)
    return row.query


def pairs_of(row: ImportRow) -> list[list[tuple[str, str]]]:
    assert isinstance(row.query, MeshRequest)
    return [list(one.entries) for one in row.query.descriptors]


ENVOY = {
    "start_time": "2030-01-01T00:00:00.250Z",
    "method": "GET",
    "path": "/api//v1/search?q=me",
    "authority": "shop.example",
    "user": "ann",
    "client_type": "tv",
    "request_name": None,
    "response_code": 200,
    "response_flags": "-",
}


def test_an_access_log_of_envoy_is_read(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        ENVOY,
        "",
        {**ENVOY, "response_code": 429},
        {**ENVOY, "response_code": 503, "response_flags": "UH,RL"},
        {**ENVOY, "response_code": None},
    )
    first, *others = import_envoy(path)
    query = check_of(first)
    assert (query.user_id, query.resource_path, query.cost, query.priority) == (
        "ann",
        "/api/v1/search",
        1,
        None,
    )
    assert query.headers == {"x-client-type": "tv"}
    assert (first.at_us, first.outcome) == (AT_US + 250_000, ADMITTED)
    assert [row.outcome for row in others] == [REFUSED, REFUSED, UNKNOWN]


def test_fields_may_have_other_names_and_stand_in_one_another(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        {"t": 1893456000.5, "who": {"id": 7}, "p": "/a", "x.y": "CRITICAL", "cost": "3"},
        {"t": 1893456001, "p": "/a"},
    )
    fields = EnvoyFields(
        time="t", user="who.id", path="p", priority="x.y", weight="cost", anonymous="nobody"
    )
    first, second = import_envoy(path, fields)
    assert first.at_us == AT_US + 500_000
    query = check_of(first)
    assert (query.user_id, query.priority, query.cost) == ("7", Criticality.CRITICAL, 3)
    assert check_of(second).user_id == "nobody"


def test_descriptors_are_put_together_as_envoy_does(tmp_path: Path) -> None:
    path = file(tmp_path, {**ENVOY, "ip": "10.0.0.1"}, ENVOY, {**ENVOY, "path": "-", "ip": "::1"})
    fields = EnvoyFields(
        domain="shop",
        descriptors=(
            (("remote_address", "ip"),),
            (("generic_key", "=search"), ("path", "path")),
        ),
    )
    first, second, third = import_envoy(path, fields)
    search = [("generic_key", "search"), ("path", "/api//v1/search?q=me")]
    assert pairs_of(first) == [[("remote_address", "10.0.0.1")], search]
    assert pairs_of(second) == [search]
    assert pairs_of(third) == [[("remote_address", "::1")]]


def test_settings_of_an_access_log_are_checked() -> None:
    for options, word in (
        ({"unit": "h"}, "unit"),
        ({"domain": "d"}, "descriptors"),
        ({"time": ""}, "time"),
        ({"headers": (("cookie", "c"),)}, "never kept"),
        ({"domain": "d", "descriptors": ((("api_key", "k"),),)}, "never kept"),
    ):
        with pytest.raises(BadValue, match=word):
            EnvoyFields(**options)


def test_a_table_of_commas_is_read(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        "time,user,path,weight,priority,client_type,header.X-Name,header.cookie,refused,other",
        "1893456000,ann,/a,2,bulk,tv,play,secret,true,x",
        '2030-01-01T01:00:00+01:00,"b,o""b",/b,,,,,,,',
    )
    first, second = import_csv(path)
    query = check_of(first)
    assert (query.user_id, query.resource_path, query.cost) == ("ann", "/a", 2)
    assert (query.priority, first.outcome) == (Criticality.BULK, REFUSED)
    assert query.headers == {"x-client-type": "tv", "x-name": "play"}
    assert (check_of(second).user_id, check_of(second).headers) == ('b,o"b', {})
    assert (first.at_us, second.at_us, second.outcome) == (AT_US, AT_US, UNKNOWN)


def test_a_table_of_a_mesh_is_read(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        "time,domain,descriptor.tenant,descriptor.path,hits",
        "1,shop,acme,/a,5",
        "2,shop,acme,,",
    )
    first, second = import_csv(path, unit="ms")
    assert pairs_of(first) == [[("tenant", "acme"), ("path", "/a")]]
    assert pairs_of(second) == [[("tenant", "acme")]]
    assert isinstance(first.query, MeshRequest)
    assert (first.query.domain, first.query.cost, first.at_us) == ("shop", 5, 1_000)


def test_lines_of_json_may_have_several_descriptors(tmp_path: Path) -> None:
    several = [[["tenant", "acme"], ["path", "/a"]], {"ip": "::1"}]
    path = file(tmp_path, {"time": 5, "domain": "shop", "descriptors": several})
    (row,) = import_jsonl(path)
    assert pairs_of(row) == [[("tenant", "acme"), ("path", "/a")], [("ip", "::1")]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "no JSON"),
        ("[1]", "no JSON object"),
        ({"user": "ann", "path": "/a"}, "no time"),
        ({"time": "yesterday", "user": "ann", "path": "/a"}, "neither a number nor a date"),
        ({"time": -1, "user": "ann", "path": "/a"}, "out of range"),
        ({"time": "2030-02-30T00:00:00Z", "user": "ann", "path": "/a"}, "no such date"),
        ({"time": 1, "path": "/a"}, "whose work"),
        ({"time": 1, "user": "-", "path": "/a"}, "whose work"),
        ({"time": 1, "user": "ann"}, "no path"),
        ({"time": 1, "user": "u" * 1_025, "path": "/a"}, "whose work"),
        ({"time": 1, "user": "ann", "path": "/" + "a" * 2_048}, "longer than 2,048"),
        ({"time": 1, "user": "ann", "path": "/a", "weight": "-1"}, "weight"),
        ({"time": 1, "user": "ann", "path": "/a", "weight": "x"}, "invalid literal"),
        ({"time": 1, "user": "ann", "path": "/a", "priority": "HUGE"}, "give one of CRITICAL"),
        ({"time": 1, "user": ["ann"], "path": "/a"}, "a text or a number"),
        ({"time": 1, "user": "ann", "path": "/a", "refused": "maybe"}, "neither true nor false"),
        ({"time": 1, "user": "ann", "path": "/a", "header.h": "v" * 8_193}, "longer than 8,192"),
        ({"time": 1, "domain": "d"}, "no descriptor"),
        ({"time": 1, "domain": "d", "descriptors": 1}, "no list"),
        ({"time": 1, "domain": "d", "descriptors": [1]}, "list of pairs"),
        ({"time": 1, "domain": "d", "descriptors": [[["a"]]]}, "a key and a value"),
    ],
)
def test_a_bad_row_is_told_by_its_line_or_passed_over(
    tmp_path: Path, line: object, message: str
) -> None:
    good = {"time": 1, "user": "ann", "path": "/a"}
    path = file(tmp_path, good, line, good)
    with pytest.raises(BadRow, match=message) as caught:
        list(import_jsonl(path))
    assert (caught.value.file, caught.value.line) == (path, 2)
    assert "line 2" in str(caught.value)
    rows = import_jsonl(path, bad_rows_max=1)
    assert len(list(rows)) == 2
    assert rows.passed_over == 1
    with pytest.raises(BadRow):
        list(import_jsonl(file(tmp_path, line, line), bad_rows_max=1))


def test_a_row_of_the_wrong_width_is_told_by_its_line(tmp_path: Path) -> None:
    path = file(tmp_path, "time,user,path", "1,ann,/a", "2,ann", "", '3,"a\nnn",/a', "4,bob,/a,x")
    rows = import_csv(path, bad_rows_max=2)
    assert [check_of(row).user_id for row in rows] == ["ann", "a\nnn"]
    with pytest.raises(BadRow, match="line 7") as caught:
        list(import_csv(path, bad_rows_max=1))
    assert "4 fields" in str(caught.value)


def test_a_table_without_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="`time`"):
        list(import_csv(file(tmp_path, "1,ann,/a")))
    with pytest.raises(BadValue, match="twice"):
        list(import_csv(file(tmp_path, "time,user,user")))


def test_packed_files_are_read_as_streams_with_progress(tmp_path: Path) -> None:
    path = tmp_path / "log.anything"
    with gzip.open(path, "wt") as packed:
        for n in range(25_000):
            packed.write(json.dumps({"time": n, "user": f"user-{n % 10}", "path": "/a"}) + "\n")
    reports: list[tuple[int, int]] = []
    captured = collect(import_jsonl(str(path), progress=lambda *both: reports.append(both)))
    size = path.stat().st_size
    assert len(captured) == 25_000
    assert len(captured.queries) == 10
    assert len(reports) == 3
    assert reports == sorted(reports)
    assert reports[-1] == (size, size)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BadValue, match="cannot be read"):
        list(import_jsonl(str(path)))


def test_a_file_that_is_not_there_and_a_line_without_end_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="a file that is there"):
        list(import_jsonl(str(tmp_path / "none")))
    with pytest.raises(BadValue, match="line 1"):
        list(import_jsonl(file(tmp_path, "x" * (LINE_CHARS_MAX + 1)), bad_rows_max=9))


def rows(count: int = 100) -> list[ImportRow]:
    return [
        ImportRow(CheckRequest(f"user-{n % 20}", "/a"), START_US + (n ^ 7), n % 2)
        for n in range(count)
    ]


def test_rows_are_collected_in_order_of_time_and_up_to_a_bound() -> None:
    captured = collect(rows())
    assert list(captured.at_us) == sorted(row.at_us for row in rows())
    assert (len(captured.queries), captured.lost, captured.share) == (20, 0, ALL)
    assert collect(rows(), requests_max=60).lost == 40


def test_rows_are_sampled_by_the_same_draw_in_memory_and_on_disk(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    stats = store(rows(), settings(folder, share=4_000), clock=HandClock())
    key = open_key(f"{folder}.key")
    here = collect(rows(), share=4_000, key=key)
    names = [f"user-{n}" for n in range(20)]
    there = read_capture(folder, vocabulary=Vocabulary([*names, "a"], key=key)).traffic
    assert 0 < len(here) == stats.written < 100
    assert list(here.at_us) == list(there.at_us)
    assert set(here.entities) == set(there.entities)
    assert here.share == there.share == 4_000
    assert b"user-" not in unpacked(folder)


def test_an_import_says_when_the_disk_does_not_take_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    capture_settings = settings(tmp_path / "file" / "capture", key_file=str(tmp_path / "key"))
    with pytest.raises(Unavailable, match="Not a directory"):
        store(rows(), capture_settings, clock=HandClock())


def test_secrets_of_a_mesh_are_dropped_on_the_way(tmp_path: Path) -> None:
    several = [[["api_key", "s3cret-s3cret"]], [["tenant", "acme"]]]
    only = several[:1]
    path = file(
        tmp_path,
        {"time": 1, "domain": "d", "descriptors": several},
        {"time": 2, "domain": "d", "descriptors": only},
    )
    captured = collect(import_jsonl(path))
    (query,) = captured.queries
    assert isinstance(query, MeshRequest)
    assert [list(one.entries) for one in query.descriptors] == [[("tenant", "acme")]]
    assert captured.lost == 1
    folder = tmp_path / "capture"
    store(import_jsonl(path), settings(folder), clock=HandClock())
    assert b"s3cret" not in unpacked(folder)
    read = read_capture(folder, key=open_key(f"{folder}.key"))
    assert (len(read.traffic), read.withheld) == (1, 1)
    assert KEY.fingerprint.encode() not in unpacked(folder)
