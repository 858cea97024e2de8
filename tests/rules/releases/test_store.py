from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluicegate.contracts.blob_store import Blob, BlobStore
from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.contracts.rulebook import Canary, NodeReport
from sluicegate.rules.releases.documents import read_report
from sluicegate.rules.releases.signatures import Untrusted, open_release, open_rollout, sign_release
from sluicegate.rules.releases.store import ReleaseStore, ReleaseStoreBounds
from sluicegate.stores.blobs.files import FileBlobs
from sluicegate.stores.blobs.files_url import FileBlobSettings
from sluicegate.stores.blobs.memory import MemoryBlobs
from tests.rules.releases.press import Press, new_signer


class Scripted:
    """A blob store where something happens before a put or a get."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs
        self.before_put: Callable[[str], None] = lambda name: None
        self.after_put: Callable[[str], None] = lambda name: None
        self.before_get: Callable[[str], None] = lambda name: None
        self.gets: list[str] = []

    def get(self, name: str, *, bytes_max: int) -> Blob | None:
        self.before_get(name)
        self.gets.append(name)
        return self.blobs.get(name, bytes_max=bytes_max)

    def put(self, name: str, data: bytes, **options: Any) -> str:
        self.before_put(name)
        tag = self.blobs.put(name, data, **options)
        self.after_put(name)
        return tag

    def names(self, prefix: str = "", *, names_max: int = 10_000) -> Any:
        return self.blobs.names(prefix, names_max=names_max)

    def delete(self, name: str) -> None:
        self.blobs.delete(name)

    def close(self) -> None:
        self.blobs.close()


# What is put.


def test_everything_lies_where_the_layout_says(tmp_path: Path) -> None:
    press = Press(FileBlobs(FileBlobSettings(folder=str(tmp_path))))
    first = press.release(1, a=1)
    second = press.release(2, 1, a=2)
    press.order(1, 2)
    assert press.blobs.names() == tuple(
        sorted(
            [
                f"snapshots/{first.snapshot.digest}",
                f"snapshots/{second.snapshot.digest}",
                f"deltas/{second.deltas[first.content].digest}",
                "editions/1.json",
                "editions/2.json",
                "orders/1.json",
                "orders/current.json",
            ]
        )
    )
    assert press.store.versions() == [1, 2]


def test_an_edition_is_put_once_and_may_be_put_again(tmp_path: Path) -> None:
    press = Press()
    release = press.release(1, a=1)
    signed = sign_release(release, press.signer).signed
    assert press.store.put_release(signed) == release
    other = sign_release(release._replace(made_us=7), press.signer).signed
    with pytest.raises(Conflict, match="release 1"):
        press.store.put_release(other)
    found = press.store.release(1)
    assert found is not None
    assert found == open_release(signed, press.store.verifier)
    assert press.store.release(2) is None


def test_what_nodes_would_refuse_is_not_put() -> None:
    press, stranger = Press(), Press(signer=new_signer())
    release = press.release(1, a=1)
    with pytest.raises(Untrusted):
        press.store.put_release(sign_release(release, stranger.signer).signed)
    with pytest.raises(Untrusted):
        press.store.put_rollout(stranger.signed(1, 1).signed)
    with pytest.raises(BadValue, match="release 2"):
        press.order(1, 2)
    with pytest.raises(BadValue, match="release 3"):
        press.order(1, 1, canary=Canary(3, "nodes", 1, ""))
    with pytest.raises(BadValue, match="release 4"):
        press.order(1, 1, pins={"n": 4})
    assert press.store.rollout() is None
    assert press.store.rollout_at(1) is None


def test_a_snapshot_that_was_spoilt_on_the_shelf_is_put_right() -> None:
    press = Press()
    release = press.release(1, a=1)
    name = f"snapshots/{release.snapshot.digest}"
    blob = press.blobs.get(name, bytes_max=1 << 20)
    assert blob is not None
    for spoilt in (b"", blob.data[:-1], blob.data + b"x", bytes(len(blob.data))):
        press.blobs.put(name, spoilt)
        with pytest.raises(Untrusted):
            press.store.snapshot(release)
        assert press.store.put_snapshot(blob.data) == release.snapshot
        assert press.store.snapshot(release).snapshot.content == release.content


# Rollouts.


def test_orders_are_kept_by_number_and_as_the_current_ones() -> None:
    press = Press()
    press.release(1, a=1)
    first, second = press.order(1, 1), press.order(5, 1)
    assert press.store.rollout() == second
    assert press.store.rollout_at(1) == first
    assert press.store.rollout_at(5) == second
    assert press.store.rollout_at(2) is None


def test_a_second_publisher_with_the_same_number_is_told() -> None:
    press = Press()
    press.release(1, a=1)
    first = press.order(1, 1)
    with pytest.raises(Conflict, match="rollout 1"):
        press.order(1, 1, back=True)
    assert press.store.rollout() == first
    press.order(3, 1)
    with pytest.raises(Conflict, match="rollout 3 is there"):
        press.order(2, 1)
    with pytest.raises(Conflict, match="rollout 1"):
        press.order(1, 1, back=True)


def test_orders_may_be_given_again_even_when_others_have_followed() -> None:
    press = Press()
    press.release(1, a=1)
    press.order(1, 1)
    press.order(1, 1)
    second = press.order(2, 1)
    press.order(1, 1)
    assert press.store.rollout() == second


def test_orders_that_are_given_again_are_not_written_again() -> None:
    blobs = Scripted(MemoryBlobs())
    press = Press(blobs)
    press.release(1, a=1)
    press.order(1, 1)
    written: list[str] = []
    blobs.before_put = written.append
    press.order(1, 1)
    assert written == []


def test_what_a_crash_left_half_done_is_completed_by_doing_it_again() -> None:
    blobs = Scripted(MemoryBlobs())
    press = Press(blobs)
    press.release(1, a=1)
    press.order(1, 1)

    def crash(name: str) -> None:
        if name == "orders/current.json":
            raise KeyboardInterrupt

    blobs.before_put = crash
    with pytest.raises(KeyboardInterrupt):
        press.order(2, 1)
    current = press.store.rollout()
    assert current is not None
    assert current.rollout.number == 1
    blobs.before_put = lambda name: None
    with pytest.raises(Conflict, match="taken this number"):
        press.order(2, 1, back=True)
    second = press.order(2, 1)
    assert press.store.rollout() == second


def test_a_put_that_happened_though_it_seemed_to_fail_is_no_conflict() -> None:
    blobs = Scripted(MemoryBlobs())
    press = Press(blobs)
    press.release(1, a=1)
    for step in ("orders/1.json", "orders/current.json"):

        def fail(name: str, step: str = step) -> None:
            if name == step:
                raise Unavailable("the store", "the answer was lost")

        blobs.after_put = fail
        with pytest.raises(Unavailable):
            press.order(1, 1)
    blobs.after_put = lambda name: None
    assert press.store.rollout() == press.order(1, 1)


def test_of_two_publishers_at_once_the_higher_number_wins() -> None:
    blobs = Scripted(MemoryBlobs())
    press = Press(blobs)
    press.release(1, a=1)
    press.order(1, 1)

    def other_is_faster(number: int) -> Callable[[str], None]:
        def put(name: str) -> None:
            if name == "orders/current.json":
                blobs.before_put = lambda name: None
                press.order(number, 1)

        return put

    blobs.before_put = other_is_faster(3)
    press.order(2, 1, back=True)  # as if given, and replaced at once
    found = press.store.rollout()
    assert found is not None
    assert found.rollout.number == 3
    blobs.before_put = other_is_faster(4)
    press.order(5, 1)
    found = press.store.rollout()
    assert found is not None
    assert found.rollout.number == 5


def test_a_publisher_that_is_always_too_late_gives_up() -> None:
    blobs = Scripted(MemoryBlobs())
    press = Press(blobs)
    press.release(1, a=1)
    numbers = iter(range(1, 50))

    def somebody_else(name: str) -> None:
        if name == "orders/current.json":
            blobs.blobs.put(name, press.signed(next(numbers), 1).signed)

    blobs.before_put = somebody_else
    with pytest.raises(Conflict, match="all the time"):
        press.order(100, 1)


# What nodes get.


def test_a_node_that_has_nothing_gets_the_whole() -> None:
    press = Press()
    release = press.release(1, a=1, b=2)
    got = press.store.snapshot(release)
    assert got.snapshot.content == release.content
    assert (got.part, got.before) == (release.snapshot, "")
    assert len(got.data) == release.snapshot.bytes


def test_a_node_gets_a_delta_from_whatever_it_has() -> None:
    blobs = Scripted(MemoryBlobs())
    press = Press(blobs)
    first, second = press.release(1, a=1), press.release(2, a=2)
    third = press.release(3, 1, a=3)
    have = [press.printed[2], press.printed[1]]
    blobs.gets.clear()
    got = press.store.snapshot(third, have)
    assert got.snapshot.content == third.content
    assert (got.part, got.before) == (third.deltas[first.content], first.content)
    assert blobs.gets == [f"deltas/{third.deltas[first.content].digest}"]
    assert press.store.snapshot(third, [press.printed[2]]).before == ""
    assert second.content not in third.deltas


def test_rules_that_are_there_already_cost_nothing() -> None:
    blobs = Scripted(MemoryBlobs())
    press = Press(blobs)
    press.release(1, a=1)
    press.release(2, 1, a=2)
    again = press.release(3, 2, a=1)
    blobs.gets.clear()
    got = press.store.snapshot(again, [press.printed[2], press.printed[1]])
    assert got.snapshot is press.printed[1]
    assert (got.part, got.data, got.before) == (None, b"", again.content)
    assert blobs.gets == []


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: data + b"x", None])
def test_a_delta_that_is_spoilt_or_gone_costs_only_the_way_round(
    spoil: Callable[[bytes], bytes] | None,
) -> None:
    press = Press()
    first = press.release(1, a=1)
    second = press.release(2, 1, a=2)
    name = f"deltas/{second.deltas[first.content].digest}"
    blob = press.blobs.get(name, bytes_max=1 << 20)
    assert blob is not None
    press.blobs.delete(name)
    if spoil is not None:
        press.blobs.put(name, spoil(blob.data))
    got = press.store.snapshot(second, [press.printed[1]])
    assert got.snapshot.content == second.content
    assert got.before == ""
    assert "delta" in got.passed_over


def test_a_delta_that_leads_elsewhere_is_passed_over() -> None:
    press = Press()
    first = press.release(1, a=1)
    second = press.release(2, 1, a=2)
    third = press.release(3, a=3)
    # Signed by the right publisher, and wrong all the same.
    crossed = third._replace(version=4, deltas={first.content: second.deltas[first.content]})
    got = press.store.snapshot(crossed, [press.printed[1]])
    assert got.snapshot.content == third.content
    assert got.passed_over


def test_a_store_that_does_not_answer_is_not_asked_for_the_whole_instead() -> None:
    blobs = Scripted(MemoryBlobs())
    press = Press(blobs)
    press.release(1, a=1)
    second = press.release(2, 1, a=2)

    def fail(name: str) -> None:
        if name.startswith("deltas/"):
            raise Unavailable("the store", "it is busy")

    blobs.before_get = fail
    with pytest.raises(Unavailable):
        press.store.snapshot(second, [press.printed[1]])


def test_a_snapshot_under_another_s_name_is_refused() -> None:
    press = Press()
    first, second = press.release(1, a=1), press.release(2, a=2)
    blob = press.blobs.get(f"snapshots/{first.snapshot.digest}", bytes_max=1 << 20)
    assert blob is not None
    press.blobs.put(f"snapshots/{second.snapshot.digest}", blob.data)
    with pytest.raises(Untrusted, match=r"bytes, not|digest"):
        press.store.snapshot(second)
    # And if the release itself names it, its rules are still not those it says.
    crossed = second._replace(snapshot=first.snapshot)
    with pytest.raises(Untrusted, match="rules are not those"):
        press.store.snapshot(crossed)


def test_an_edition_or_orders_under_another_s_name_are_refused() -> None:
    press = Press()
    press.release(1, a=1)
    press.release(2, a=2)
    first = press.order(1, 1)
    press.order(2, 1)
    one = press.store.release(1)
    assert one is not None
    press.blobs.put("editions/2.json", one.signed)
    with pytest.raises(BadValue, match="asked for as release 2"):
        press.store.release(2)
    press.blobs.put("orders/2.json", first.signed)
    with pytest.raises(BadValue, match="rollout 2"):
        press.store.rollout_at(2)
    press.blobs.put("orders/current.json", one.signed)
    with pytest.raises(Untrusted, match="'edition'"):
        press.store.rollout()


def test_a_snapshot_that_is_gone_is_told() -> None:
    press = Press()
    release = press.release(1, a=1)
    press.blobs.delete(f"snapshots/{release.snapshot.digest}")
    with pytest.raises(Untrusted, match="not in the store"):
        press.store.snapshot(release)


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        (ReleaseStoreBounds(snapshot_bytes_max=10), "snapshot_bytes_max"),
        (ReleaseStoreBounds(unpacked_bytes_max=10), "unpacked_bytes_max"),
    ],
)
def test_what_is_too_large_is_refused_with_the_bound_to_raise(
    bounds: ReleaseStoreBounds, why: str
) -> None:
    press = Press()
    release = press.release(1, a=1)
    small = ReleaseStore(press.blobs, press.signer.verifier(), bounds=bounds)
    with pytest.raises(BadValue, match=why):
        small.snapshot(release)


def test_a_bomb_is_refused_by_what_it_would_become_whatever_it_says() -> None:
    press = Press()
    release = press.release(1, a=1)._replace(bytes_unpacked=1)
    small = ReleaseStore(
        press.blobs, press.signer.verifier(), bounds=ReleaseStoreBounds(unpacked_bytes_max=100)
    )
    with pytest.raises(Exception, match="bytes_max"):
        small.snapshot(release)


def test_a_delta_that_is_too_large_is_passed_over_and_not_put() -> None:
    press = Press()
    press.release(1, a=1)
    release = press.release(2, 1, a=2)
    small = ReleaseStore(
        press.blobs, press.signer.verifier(), bounds=ReleaseStoreBounds(delta_bytes_max=10)
    )
    assert "delta_bytes_max" in small.snapshot(release, [press.printed[1]]).passed_over
    with pytest.raises(BadValue, match="delta_bytes_max"):
        small.put_delta(b"x" * 11)
    with pytest.raises(BadValue, match="from 1"):
        small.put_snapshot(b"")
    with pytest.raises(BadValue, match="names_max"):
        ReleaseStoreBounds(names_max=0)


# Reports.


def test_a_node_s_report_lies_under_its_name_and_can_be_forgotten() -> None:
    press = Press()
    report = NodeReport("limiter-7", 1, 2, 0, 4, 5, 6, "", {})
    press.store.put_report(report)
    press.store.put_report(report._replace(version=3))
    assert press.store.nodes() == ["limiter-7"]
    blob = press.store.report_blob("limiter-7")
    assert blob is not None
    assert read_report(blob.data).version == 3
    press.store.forget_node("limiter-7")
    assert press.store.nodes() == []
    assert press.store.report_blob("limiter-7") is None
    with pytest.raises(BadValue, match="node"):
        press.store.put_report(report._replace(node="../orders/current"))


def test_orders_are_opened_only_as_the_orders_that_were_asked_for() -> None:
    press = Press()
    signed = press.signed(4, 1).signed
    assert open_rollout(signed, press.store.verifier, number=4).rollout.number == 4
    with pytest.raises(BadValue, match="rollout 5"):
        open_rollout(signed, press.store.verifier, number=5)
