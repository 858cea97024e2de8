from __future__ import annotations

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import Canary
from sluicegate.rules.releases.sweep import SweepResult
from sluicegate.testing import START_US
from tests.rules.releases.press import Press

HOUR_US = 3_600_000_000


def parts(press: Press) -> set[str]:
    return {*press.blobs.names("snapshots/"), *press.blobs.names("deltas/")}


def needs(press: Press, *versions: int) -> set[str]:
    names: set[str] = set()
    for version in versions:
        found = press.store.release(version)
        assert found is not None
        names.add(f"snapshots/{found.release.snapshot.digest}")
        names |= {f"deltas/{part.digest}" for part in found.release.deltas.values()}
    return names


def history(press: Press, last: int) -> None:
    press.release(1, a=1)
    for version in range(2, last + 1):
        press.release(version, version - 1, a=version)


def swept(press: Press, keep: int) -> SweepResult:
    """Found useless, and found so again an hour later."""
    press.store.sweep(keep, now_us=START_US)
    return press.store.sweep(keep, now_us=START_US + HOUR_US)


def test_what_the_last_editions_need_stays_and_the_rest_goes() -> None:
    press = Press()
    history(press, 6)
    press.order(1, 6)
    needless = needs(press, 1, 2, 3, 4) - needs(press, 5, 6)
    assert set(swept(press, 2).deleted) == needless
    assert parts(press) == needs(press, 5, 6)
    assert press.store.versions() == [1, 2, 3, 4, 5, 6]
    assert swept(press, 2) == SweepResult((), 0)


def test_what_is_ordered_or_pinned_never_goes() -> None:
    press = Press()
    history(press, 8)
    press.order(1, 2, canary=Canary(4, "nodes", 1, "s"), pins={"n": 1, "m": 6})
    swept(press, 1)
    assert parts(press) == needs(press, 1, 2, 4, 6, 8)


def test_what_orders_under_way_name_stays() -> None:
    press = Press()
    history(press, 5)
    press.order(1, 5)
    # A publisher was killed between the two steps of giving these.
    press.blobs.put("orders/2.json", press.signed(2, 2).signed)
    swept(press, 1)
    assert parts(press) == needs(press, 2, 5)


def test_a_part_goes_only_when_it_was_found_useless_for_a_while() -> None:
    press = Press()
    history(press, 3)
    part = press.store.put_snapshot(b"of a release that is just being published")
    name = f"snapshots/{part.digest}"
    first = press.store.sweep(3, now_us=START_US)
    assert first == SweepResult((), 1)
    assert press.store.sweep(3, now_us=START_US + HOUR_US - 1) == SweepResult((), 1)
    assert name in press.blobs.names("snapshots/")
    assert press.store.sweep(3, now_us=START_US + HOUR_US) == SweepResult((name,), 0)
    assert name not in press.blobs.names("snapshots/")


def test_a_part_that_is_needed_again_begins_anew() -> None:
    press = Press()
    history(press, 3)
    press.order(1, 3)
    press.store.sweep(1, now_us=START_US)
    press.order(2, 1)
    press.store.sweep(1, now_us=START_US + HOUR_US // 2)
    press.order(3, 3)
    late = press.store.sweep(1, now_us=START_US + HOUR_US)
    assert needs(press, 1) <= parts(press)
    assert late.waiting == len(needs(press, 1))


def test_the_marks_outlive_the_sweeper_and_damaged_ones_only_cost_time() -> None:
    press = Press()
    history(press, 3)
    press.store.sweep(1, now_us=START_US)
    later = Press(press.blobs)
    assert later.store.sweep(1, now_us=START_US + HOUR_US).deleted
    history(press, 3)
    press.store.sweep(1, now_us=START_US)
    press.blobs.put("sweep.json", b"{")
    assert press.store.sweep(1, now_us=START_US + HOUR_US).deleted == ()
    assert press.store.sweep(1, now_us=START_US + 2 * HOUR_US).deleted


def test_of_two_sweepers_one_leaves_it_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    press = Press()
    history(press, 3)
    press.store.sweep(1, now_us=START_US)
    whole, real = parts(press), press.blobs.put

    def slower(name: str, data: bytes, **options: object) -> str:
        monkeypatch.undo()
        press.blobs.put("sweep.json", b'{"format":1,"marks":{}}')
        return real(name, data, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(
        type(press.blobs), "put", lambda _, *args, **options: slower(*args, **options)
    )
    assert press.store.sweep(1, now_us=START_US + HOUR_US).deleted == ()
    assert parts(press) == whole


def test_a_sweep_that_would_take_from_under_a_publisher_is_refused() -> None:
    press = Press()
    press.release(1, a=1)
    with pytest.raises(BadValue, match="grace_us"):
        press.store.sweep(1, now_us=START_US, grace_us=59_000_000)
    with pytest.raises(BadValue, match="keep"):
        press.store.sweep(0, now_us=START_US)


def test_an_edition_that_cannot_be_read_stops_the_sweep() -> None:
    press = Press()
    history(press, 3)
    press.blobs.put("editions/3.json", b"damaged")
    whole = parts(press)
    for at_us in (START_US, START_US + HOUR_US):
        with pytest.raises(Exception, match="edition"):
            press.store.sweep(1, now_us=at_us)
    assert parts(press) == whole
