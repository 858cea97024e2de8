"""`sluicegate quota replay`: quotas tried on what a served dispatcher was really asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluicegate.apps.quota.replay import asks_of, play, smallest_quota
from sluicegate.cli import main
from sluicegate.contracts.checks import CheckRequest
from sluicegate.shadow.quota_asks import read_asked, settlement_of
from sluicegate.shadow.traffic import ADMITTED, REFUSED, TrafficBuilder
from tests.apps.kv.process import KvProcess, access_file, token_of

EPOCH_MS = 60_000  # so long that a slow machine spends a quota too
QUOTA = 1
SECOND_US = 1_000_000


def test_the_same_quota_refuses_what_was_refused_and_a_doubled_one_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    access = access_file(tmp_path, {"shop": 'tables = { "*" = ["read", "write"] }'})
    folder = str(tmp_path / "asked")
    flags = ["--engine", "memory:", "--quota-ru", str(QUOTA), "--epoch-ms", str(EPOCH_MS)]
    flags += ["--access", access, "--capture", folder]
    statuses: list[int] = []
    with KvProcess(tmp_path, *flags) as kv:
        while statuses.count(429) < 5 and len(statuses) < 2_000:
            path = f"/v1/tables/homes/rows/{len(statuses)}"
            statuses.append(kv.ask(path, {"n": 1}, method="PUT", token=token_of("shop"))[0])
    assert statuses.count(429) == 5

    def replay(quota: int) -> dict[str, object]:
        words = ["quota", "replay", folder, "--quota", f"shop={quota}", "--json"]
        assert main([*words, "--epoch-ms", str(EPOCH_MS)]) == 0
        (caller,) = json.loads(capsys.readouterr().out)["callers"]
        assert (caller["caller"], caller["asked"]) == ("shop", len(statuses))
        assert caller["refused"] == 5
        proposed: dict[str, object] = caller["proposed"]
        return proposed

    same = replay(QUOTA)
    assert (same["admitted"], same["refused"]) == (len(statuses) - 5, 5)
    assert replay(2 * QUOTA)["refused"] == 0

    assert main(["quota", "replay", folder, "--quota", "shop=2", "--epoch-ms", str(EPOCH_MS)]) == 0
    told = capsys.readouterr().out
    assert main(["quota", "replay", folder, "--quota", "shp=2"]) == 2
    assert (
        "--quota: 'shp' cannot be used; name a caller that is captured; did you mean 'shop'?"
        in (capsys.readouterr().err)
    )
    assert f"{len(statuses) - 5:,} admitted, 5 refused" in told
    assert "refuses nothing   from 2 RU/s on" in told


def traffic_of(*asked: tuple[int, str, int, int]) -> TrafficBuilder:
    built = TrafficBuilder()
    for at_us, path, mru, outcome in asked:
        built.add(CheckRequest("shop", path, cost=mru), at_us, outcome)
    return built


def test_a_correction_counts_if_its_charge_was_admitted() -> None:
    put = "/charge/put/homes"
    built = traffic_of(
        (0, put, 6_000, ADMITTED),
        (1, "/settle/back", 4_000, ADMITTED),
        (2, put, 6_000, ADMITTED),
        (3, "/settle/more", 3_000, ADMITTED),
        (4, put, 4_000, REFUSED),
    )
    asks = asks_of(built.build())["shop"]
    assert play("shop", asks, 8, SECOND_US)[:3] == (2, 1, 4_000)
    # The second charge is refused: what it was corrected by does not count against the third.
    assert play("shop", asks, 7, SECOND_US)[:3] == (2, 1, 6_000)


@pytest.mark.parametrize("mru", [3_000, -4_000])
def test_a_correction_is_read_as_it_was_kept(mru: int) -> None:
    asked = read_asked(settlement_of("shop", mru))
    assert asked is not None
    assert (asked.caller, asked.mru, asked.operation) == ("shop", mru, "")


def test_the_smallest_quota_refuses_nothing_and_one_less_does() -> None:
    asks = asks_of(
        traffic_of(*[(at * 1_000, "/charge/get/t", 1_500, ADMITTED) for at in range(37)]).build()
    )["shop"]
    quota = smallest_quota("shop", asks, SECOND_US)
    assert quota is not None
    assert play("shop", asks, quota, SECOND_US).refused == 0
    assert play("shop", asks, quota - 1, SECOND_US).refused > 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--quota", "shop"], "CALLER=RU"),
        (["--quota", "shop=x"], "--quota shop"),
        (["--epoch-ms", "0"], "--epoch-ms"),
    ],
)
def test_what_is_wrong_is_told(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quota", "replay", str(tmp_path), *words]) != 0
    assert told in capsys.readouterr().err


def test_a_folder_without_a_capture_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quota", "replay", str(tmp_path)]) != 0
    assert "there is no capture" in capsys.readouterr().err
