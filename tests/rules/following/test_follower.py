from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rulebook import BY_CALLERS, BY_NODES, Canary
from sluicegate.rules.following.fleet_books import in_share
from sluicegate.rules.following.follower import Follower
from sluicegate.rules.releases.documents import rollout_bytes
from sluicegate.rules.releases.json_fields import write_object
from sluicegate.rules.releases.signatures import RELEASE, ROLLOUT, Untrusted, Verifier
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.testing import START_US, HandClock
from sluicegate.wire.json_objects import parse_object
from tests.rules.following.node import Node
from tests.rules.releases.press import Press, new_signer


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "sluicegate.rules")


def fleet(*versions: int) -> Press:
    """Releases, each with a delta from the one before, and rollouts to run the first."""
    press = Press()
    for place, version in enumerate(versions):
        press.release(version, *versions[max(0, place - 1) : place], a=version)
    press.order(1, versions[0])
    return press


# The ordinary life.


def test_a_new_node_runs_what_is_ordered() -> None:
    node = Node(fleet(1)).begin()
    assert node.runs == (1, 0)
    assert node.follower.book.version == "1"
    assert node.follower.counts == (1, 0)
    assert not node.poll()
    assert len(node.handed) == 1


def test_newer_orders_are_followed_by_a_delta() -> None:
    press = fleet(1, 2)
    node = Node(press).begin()
    press.order(2, 2)
    node.line.calls.clear()
    assert node.poll()
    assert node.runs == (2, 0)
    assert [name.split("/")[0] for name in node.line.calls] == ["orders", "editions", "deltas"]
    metrics = node.follower.metrics()
    assert (metrics.whole, metrics.deltas, metrics.rollout) == (1, 1, 2)


def test_a_node_that_was_cut_off_for_long_catches_up_by_one_delta() -> None:
    press = fleet(1, 2, 3, 4)
    node = Node(press).begin()
    node.line.cut = ""
    press.order(2, 2)
    for _ in range(60):
        node.clock.advance(s=60)
        assert not node.poll()
    assert node.runs == (1, 0)
    assert "line is cut" in node.failure["orders"]
    press.release(5, 4, 1, a=5)
    press.order(3, 5)
    node.line.cut = None
    assert node.poll()
    assert node.runs == (5, 0)
    assert node.failure == {}
    assert node.follower.metrics().deltas == 1


def test_where_no_delta_leads_on_the_editions_between_are_gone_through() -> None:
    press = fleet(1, 2, 3)
    node = Node(press).begin()
    press.order(2, 3)
    node.line.calls.clear()
    assert node.poll()
    assert node.runs == (3, 0)
    kinds = [name.split("/")[0] for name in node.line.calls]
    assert kinds == ["orders", "editions", "editions", "deltas", "deltas"]
    metrics = node.follower.metrics()
    assert (metrics.whole, metrics.deltas) == (1, 1)


def test_what_was_gone_through_is_kept_and_started_from(tmp_path: Path) -> None:
    press = fleet(1, 2, 3)
    node = Node(press, folder=tmp_path / "kept").begin()
    press.order(2, 3)
    assert node.poll()
    node.follower.close()
    again = Node(press, folder=tmp_path / "kept")
    again.line.cut = ""
    again.begin()
    assert again.runs == (3, 0)


def test_a_node_that_was_cut_off_for_too_long_catches_up_by_the_snapshot() -> None:
    press = fleet(*range(1, 31))  # so many deltas are more than the whole
    node = Node(press).begin()
    press.order(2, 30)
    assert node.poll()
    metrics = node.follower.metrics()
    assert (metrics.whole, metrics.deltas) == (2, 0)


def test_a_broken_delta_on_the_way_is_gone_round_by_the_snapshot() -> None:
    press = fleet(1, 2, 3)
    node = Node(press).begin()
    between = press.store.release(2)
    assert between is not None
    press.blobs.delete(f"deltas/{next(iter(between.release.deltas.values())).digest}")
    press.order(2, 3)
    assert node.poll()
    assert node.runs == (3, 0)
    assert node.failed("rules", "refused") == 1
    assert node.follower.metrics().whole == 2


def test_a_delta_that_does_not_do_is_counted_and_is_no_trouble() -> None:
    press = fleet(1, 2)
    node = Node(press).begin()
    release = press.store.release(2)
    assert release is not None
    press.blobs.delete(f"deltas/{next(iter(release.release.deltas.values())).digest}")
    press.order(2, 2)
    assert node.poll()
    assert node.runs == (2, 0)
    assert node.failed("rules", "refused") == 1
    assert node.failure == {}
    assert node.follower.metrics().whole == 2


def test_orders_that_change_nothing_here_are_noted_and_not_handed_over() -> None:
    press = fleet(1)
    node = Node(press).begin()
    press.order(2, 1, pins={"other": 1})
    node.clock.advance(s=5)
    assert node.poll()
    assert len(node.handed) == 1
    assert node.follower.report().rollout == 2
    assert node.follower.report().since_us == START_US


def test_going_back_to_old_rules_as_a_new_edition_fetches_nothing() -> None:
    press = fleet(1)
    node = Node(press).begin()
    press.release(2, 1, a=1)
    press.order(2, 2)
    node.line.calls.clear()
    assert node.poll()
    assert node.runs == (2, 0)
    assert [name.split("/")[0] for name in node.line.calls] == ["orders", "editions"]


# Pins and canaries.


def test_a_pinned_node_runs_what_it_is_told_and_comes_back_when_let_go() -> None:
    press = fleet(1, 2, 3)
    press.order(2, 2)
    node = Node(press, name="n1").begin()
    press.order(3, 2, pins={"n1": 1})
    assert node.poll()
    assert node.runs == (1, 0)
    press.order(4, 3, pins={"n1": 1}, canary=Canary(2, BY_CALLERS, 5_000, "s"))
    node.poll()
    assert node.runs == (1, 0)
    press.order(5, 2)
    node.poll()  # from 3 back to 2: this is refused for all
    assert node.runs == (1, 0)
    press.order(6, 3)
    assert node.poll()
    assert node.runs == (3, 0)


def test_a_canary_of_nodes_runs_on_its_share_and_is_let_go_of() -> None:
    press = fleet(1, 2)
    nodes = {f"n{number}": Node(press, name=f"n{number}").begin() for number in range(20)}
    press.order(2, 1, canary=Canary(2, BY_NODES, 3_000, "s"))
    for name, node in nodes.items():
        node.poll()
        assert node.runs == (2 if in_share(name, share=3_000, salt="s") else 1, 0)
    assert {node.runs for node in nodes.values()} == {(1, 0), (2, 0)}
    press.order(3, 1)
    for node in nodes.values():
        node.poll()
        assert node.runs == (1, 0)


def test_a_canary_of_callers_is_handed_over_beside_the_live_rules() -> None:
    press = fleet(1, 2)
    node = Node(press).begin()
    press.order(2, 1, canary=Canary(2, BY_CALLERS, 100, "s"))
    assert node.poll()
    assert node.runs == (1, 2)
    first = node.follower.books
    assert first.live is node.handed[0].live
    names = [f"u{number}" for number in range(1_000)]
    small = {name for name in names if first.runs_canary(name)}
    press.order(3, 1, canary=Canary(2, BY_CALLERS, 2_500, "s"))
    node.line.calls.clear()
    assert node.poll()
    assert node.line.calls == ["orders/current.json"]
    grown = node.follower.books
    assert grown.canary is first.canary
    assert small < {name for name in names if grown.runs_canary(name)}
    press.order(4, 2)
    assert node.poll()
    assert node.runs == (2, 0)
    assert node.follower.book is first.canary


def test_of_a_canary_that_cannot_be_had_nothing_is_taken() -> None:
    press = fleet(1, 2, 3)
    node = Node(press).begin()
    release = press.store.release(3)
    assert release is not None
    press.blobs.put(f"snapshots/{release.release.snapshot.digest}", b"spoilt")
    press.order(2, 2, canary=Canary(3, BY_CALLERS, 100, "s"))
    press.blobs.delete(f"deltas/{next(iter(release.release.deltas.values())).digest}")
    assert not node.poll()
    assert node.runs == (1, 0)


# What is refused.


def test_orders_that_a_stranger_signed_are_refused() -> None:
    press, stranger = fleet(1, 2), Press(signer=new_signer())
    node = Node(press).begin()
    press.blobs.put("orders/current.json", stranger.signed(2, 2).signed)
    assert not node.poll()
    assert node.runs == (1, 0)
    assert "is not trusted here" in node.failure["orders"]
    assert node.failed("orders", "untrusted") == 1
    press.blobs.put("orders/current.json", press.signed(2, 2).signed)
    assert node.poll()
    assert node.failure == {}


def test_an_edition_that_is_shown_as_orders_is_refused() -> None:
    press = fleet(1, 2)
    node = Node(press).begin()
    body = rollout_bytes(press.signed(2, 2).rollout)
    press.blobs.put("orders/current.json", press.signer.sign(RELEASE, body))
    assert not node.poll()
    relabelled = json.loads(press.signer.sign(RELEASE, body)) | {"kind": ROLLOUT}
    press.blobs.put("orders/current.json", json.dumps(relabelled).encode())
    assert not node.poll()
    assert node.runs == (1, 0)
    assert node.failed("orders", "untrusted") == 2


def test_old_orders_that_are_shown_again_are_refused() -> None:
    press = fleet(1, 2)
    old = press.store.rollout()
    assert old is not None
    node = Node(press).begin()
    press.order(2, 2)
    node.poll()
    press.blobs.put("orders/current.json", old.signed)
    assert not node.poll()
    assert node.runs == (2, 0)
    assert "number 2 has been seen" in node.failure["orders"]
    assert node.failed("orders", "replayed") == 1
    node.follower.notify(old.signed, START_US)
    assert not node.follower.look()
    assert node.runs == (2, 0)


def test_an_older_version_is_run_only_where_the_orders_say_so() -> None:
    press = fleet(1, 2, 3)
    press.order(2, 3)
    node = Node(press).begin()
    press.order(3, 2)
    assert not node.poll()
    assert node.runs == (3, 0)
    assert "give rollouts that say `back`" in node.failure["rules"]
    assert node.failed("rules", "older") == 1
    assert node.follower.status()["last_load"]["result"] == "refused"  # type: ignore[index]
    node.clock.advance(s=600)
    assert not node.follower.look()  # no trying again makes them better
    assert node.failed("rules", "older") == 1
    press.order(4, 2, back=True)
    assert node.poll()
    assert node.runs == (2, 0)
    assert node.failure == {}


def test_a_node_that_missed_the_orders_that_said_so_follows_those_after_them() -> None:
    press = fleet(1, 2, 3)
    press.order(2, 3)
    node = Node(press).begin()
    press.order(3, 2, back=True)
    press.order(4, 2)
    assert node.poll()
    assert node.runs == (2, 0)


@pytest.mark.parametrize("spoil", ["cut", "longer", "swapped", "gone", "empty"])
def test_a_snapshot_that_is_not_what_it_should_be_changes_nothing(spoil: str) -> None:
    press = Press()
    first, second = press.release(1, a=1), press.release(2, a=2)
    press.order(1, 1)
    node = Node(press).begin()
    press.order(2, 2)
    name = f"snapshots/{second.snapshot.digest}"
    blob = press.blobs.get(name, bytes_max=1 << 20)
    other = press.blobs.get(f"snapshots/{first.snapshot.digest}", bytes_max=1 << 20)
    assert blob is not None
    assert other is not None
    bad = {
        "cut": blob.data[:-1],
        "longer": blob.data + b"\0",
        "swapped": other.data,
        "gone": b"",
        "empty": b"",
    }[spoil]
    press.blobs.delete(name)
    if spoil != "gone":
        press.blobs.put(name, bad)
    assert not node.poll()
    assert node.runs == (1, 0)
    assert node.failed("rules", "untrusted") == 1
    press.blobs.put(name, blob.data)
    node.clock.advance(s=60)
    assert node.follower.look()
    assert node.runs == (2, 0)
    assert node.failure == {}


def test_a_snapshot_that_was_signed_and_is_none_changes_nothing() -> None:
    press = fleet(1)
    node = Node(press).begin()
    release = press.release(2, a=2)
    from sluicegate.rules.releases.signatures import sign_release

    part = press.store.put_snapshot(b"signed, and no snapshot at all")
    bad = sign_release(release._replace(version=3, snapshot=part), press.signer)
    press.store.put_release(bad.signed)
    miscounted = sign_release(release._replace(version=4, rules=7), press.signer)
    press.store.put_release(miscounted.signed)
    press.order(2, 3)
    assert not node.poll()
    assert node.failed("rules", "damaged") == 1
    press.order(3, 4)
    assert not node.poll()
    assert "edition.rules" in node.failure["rules"]
    assert node.runs == (1, 0)


def test_what_a_newer_publisher_has_written_is_read_or_refused_with_a_remedy() -> None:
    press = fleet(1, 2)
    node = Node(press).begin()
    body = parse_object(rollout_bytes(press.signed(2, 2).rollout), "orders")
    later = write_object({**body, "format": 2})
    press.blobs.put("orders/current.json", press.signer.sign(ROLLOUT, later))
    assert not node.poll()
    assert "upgrade" in node.failure["orders"]
    assert node.runs == (1, 0)
    assert node.failed("orders", "refused") == 1
    added = write_object({**body, "invented_later": {"a": 1}})
    press.blobs.put("orders/current.json", press.signer.sign(ROLLOUT, added))
    assert node.poll()
    assert node.runs == (2, 0)


def test_a_book_that_is_turned_down_by_whoever_takes_it_changes_nothing() -> None:
    press = fleet(1, 2)
    node = Node(press).begin()
    node.refuses = BadValue("rules", 2, "fewer")
    press.order(2, 2)
    assert not node.poll()
    assert node.runs == (1, 0)
    assert "fewer" in node.failure["rules"]
    node.refuses = RuntimeError("a mistake")
    node.clock.advance(s=60)
    assert not node.follower.look()
    assert node.failure["rules"] == "a mistake"
    node.refuses = None
    node.clock.advance(s=60)
    assert node.follower.look()
    assert node.runs == (2, 0)


def test_what_failed_is_tried_again_less_and_less_often() -> None:
    press = fleet(1, 2)
    node = Node(press, every_s=3_600).begin()
    node.follower.look()
    press.order(2, 2)
    node.line.cut = "editions/"
    node.follower.notify(press.signed(2, 2).signed, START_US)
    assert not node.follower.look()
    tries = [0]
    for second in range(1, 601):
        node.clock.advance(s=1)
        node.follower.look()
        tries += [second] if node.failed("rules", "unreachable") > len(tries) else []
    gaps = [after - before for before, after in itertools.pairwise(tries)]
    assert gaps[0] <= 2
    assert 15 <= max(gaps) <= 31
    assert 20 <= len(gaps) <= 50
    node.line.cut = None
    node.clock.advance(s=31)
    assert node.follower.look()


# Announcements.


def test_an_announcement_is_followed_without_asking_for_the_orders() -> None:
    press = fleet(1, 2)
    node = Node(press, every_s=3_600).begin()
    node.follower.look()
    signed_order = press.order(2, 2)
    node.line.calls.clear()
    node.follower.notify(signed_order.signed, START_US)
    assert node.follower.look()
    assert node.runs == (2, 0)
    assert "orders/current.json" not in node.line.calls


def test_of_many_announcements_the_highest_number_is_followed() -> None:
    press = fleet(1, 2, 3)
    node = Node(press, every_s=3_600).begin()
    node.follower.look()
    signed = [press.order(number, 1 + number % 3).signed for number in (2, 4, 5)]
    for one in (signed[1], signed[2], signed[0]):
        node.follower.notify(one, START_US)
    assert node.follower.look()
    assert node.follower.report().rollout == 5
    assert len(node.handed) == 2


def test_a_forged_announcement_is_passed_over() -> None:
    press, stranger = fleet(1, 2), Press(signer=new_signer())
    node = Node(press, every_s=3_600).begin()
    node.follower.look()
    for forged in (stranger.signed(9, 2).signed, b"", b"{}", press.signed(2, 2).signed[:-3]):
        node.follower.notify(forged, START_US)
    assert not node.follower.look()
    assert node.runs == (1, 0)
    assert node.failed("announcements", "untrusted") + node.failed("announcements", "refused") == 4
    assert node.failure == {}


def test_a_flood_of_forged_announcements_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node(fleet(1)).begin()
    caplog.set_level(logging.WARNING, "sluicegate.rules")
    for _ in range(1_000):
        node.follower.notify(b"forged", START_US)
    assert node.failed("announcements", "untrusted") == 1_000
    assert len(caplog.records) == 10


def test_a_trouble_that_lasts_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(fleet(1)).begin()
    caplog.set_level(logging.WARNING, "sluicegate.rules")
    node.line.cut = ""
    for _ in range(100):
        node.poll()
    assert len(caplog.records) == 1
    node.line.cut = None
    node.poll()
    node.line.cut = ""
    node.poll()
    assert len(caplog.records) == 2


def test_an_announcement_does_more_than_the_shelf_cannot_say_yet() -> None:
    # The store may be slower than the log for a reader far away.
    press = fleet(1, 2)
    node = Node(press, every_s=3_600).begin()
    node.follower.look()
    node.follower.notify(press.signed(2, 2).signed, START_US)
    assert node.follower.look()
    assert not node.poll()
    assert node.failed("orders", "replayed") == 1  # told, for it cannot be told from a replay
    press.order(2, 2)
    node.poll()
    assert node.failure == {}


# Start.


def test_with_nothing_kept_and_nobody_to_ask_a_node_does_not_start(tmp_path: Path) -> None:
    press = fleet(1)
    node = Node(press, tmp_path / "rules")
    node.line.cut = ""
    with pytest.raises(Unavailable, match=r"every rule.*nothing is kept.*the line is cut"):
        node.follower.start()
    with pytest.raises(Unavailable, match="start"):
        node.follower.status()
    empty = Node(Press())
    with pytest.raises(Unavailable, match="publish a release first"):
        empty.begin()
    other = Node(press, verifier=new_signer().verifier())
    with pytest.raises(Untrusted, match="is not trusted here"):
        other.begin()


def test_whoever_refuses_the_first_rules_stops_the_start(tmp_path: Path) -> None:
    press = fleet(1)
    node = Node(press, tmp_path / "rules")
    node.refuses = BadValue("rules", 1, "fewer")
    with pytest.raises(BadValue, match="fewer"):
        node.begin()
    Node(press, tmp_path / "rules").begin()
    node = Node(press, tmp_path / "rules")
    node.refuses = BadValue("rules", 1, "fewer")
    with pytest.raises(BadValue, match="fewer"):
        node.begin()


def test_a_node_starts_from_its_disk_with_everything_else_down(tmp_path: Path) -> None:
    press = fleet(1, 2, 3)
    node = Node(press, tmp_path / "rules").begin()
    press.order(2, 2, canary=Canary(3, BY_CALLERS, 500, "s"))
    node.poll()
    node.close()
    again = Node(press, tmp_path / "rules")
    again.line.cut = ""
    again.begin()
    assert again.runs == (2, 3)
    assert again.follower.books.share == 500
    assert again.follower.report().rollout == 2
    assert again.line.calls == []
    assert again.follower.metrics().checked_us == START_US
    again.clock.advance(s=60)
    assert not again.poll()
    assert again.follower.metrics().checked_us == START_US
    again.line.cut = None
    press.order(3, 3)
    assert again.poll()
    assert again.runs == (3, 0)
    assert again.follower.metrics().checked_us == START_US + 60_000_000


def test_what_is_kept_is_written_once(tmp_path: Path) -> None:
    press = fleet(1)
    node = Node(press, tmp_path / "rules").begin()
    before = (tmp_path / "rules" / "state.json").stat()
    node.poll()
    after = (tmp_path / "rules" / "state.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    press.order(2, 1)
    node.poll()
    assert (tmp_path / "rules" / "state.json").stat().st_ino != after.st_ino


def test_many_deltas_are_kept_as_steps_and_begun_anew_when_they_are_many(tmp_path: Path) -> None:
    press = fleet(1)
    node = Node(press, tmp_path / "rules").begin()
    parts_kept = []
    for version in range(2, 40):
        press.release(version, version - 1, a=version)
        press.order(version, version)
        assert node.poll()
        parts_kept.append(len([*(tmp_path / "rules" / "parts").iterdir()]))
    assert parts_kept[:15] == [*range(2, 17)]
    assert max(parts_kept) == 16
    assert min(parts_kept[15:]) == 1
    assert node.follower.metrics().deltas == 38
    node.close()
    again = Node(press, tmp_path / "rules")
    again.line.cut = ""
    assert again.begin().runs == (39, 0)


def test_rules_that_stayed_the_same_are_kept_as_a_step_without_a_part(tmp_path: Path) -> None:
    press = fleet(1)
    node = Node(press, tmp_path / "rules").begin()
    press.release(2, a=1)
    press.order(2, 2)
    assert node.poll()
    node.close()
    again = Node(press, tmp_path / "rules")
    again.line.cut = ""
    assert again.begin().runs == (2, 0)


@pytest.mark.parametrize("name", ["state.json", "part"])
@pytest.mark.parametrize("spoil", ["cut", "swapped", "empty", "gone", "flipped"])
def test_what_is_kept_and_was_spoilt_is_not_run(tmp_path: Path, name: str, spoil: str) -> None:
    press = fleet(1, 2)
    folder = tmp_path / "rules"
    Node(press, folder).begin().close()
    path = folder / name if name != "part" else next((folder / "parts").iterdir())
    data = path.read_bytes()
    other = press.blobs.get("editions/2.json", bytes_max=1 << 20)
    assert other is not None
    spoilt = {
        "cut": data[:-9],
        "swapped": other.data,
        "empty": b"",
        "gone": b"",
        "flipped": data[:99] + bytes([data[99] ^ 1]) + data[100:],
    }[spoil]
    path.write_bytes(spoilt)
    if spoil == "gone":
        path.unlink()
    offline = Node(press, folder)
    offline.line.cut = ""
    with pytest.raises(Unavailable, match="every rule"):
        offline.begin()
    offline.close()
    node = Node(press, folder).begin()  # and with the store it is put right
    assert node.runs == (1, 0)
    node.close()
    again = Node(press, folder)
    again.line.cut = ""
    assert again.begin().runs == (1, 0)


def test_what_is_kept_is_run_only_if_its_key_is_trusted_still(tmp_path: Path) -> None:
    press, other = fleet(1), new_signer()
    Node(press, tmp_path / "rules").begin().close()
    node = Node(press, tmp_path / "rules", verifier=other.verifier())
    node.line.cut = ""
    with pytest.raises(Unavailable, match="is not trusted here"):
        node.begin()
    both = Verifier([press.signer.public_pem(), other.public_pem()])
    node = Node(press, tmp_path / "rules", verifier=both)
    node.line.cut = ""
    assert node.begin().runs == (1, 0)


def test_a_restart_does_not_make_old_orders_good_again(tmp_path: Path) -> None:
    press = fleet(1, 2)
    old = press.store.rollout()
    assert old is not None
    press.order(2, 2)
    Node(press, tmp_path / "rules").begin().close()
    press.blobs.put("orders/current.json", old.signed)
    node = Node(press, tmp_path / "rules").begin()
    assert not node.poll()
    assert node.runs == (2, 0)
    assert node.failed("orders", "replayed") == 1
    node.close()
    # Not even if what was kept cannot be run any more.
    for part in (tmp_path / "rules" / "parts").iterdir():
        part.unlink()
    node = Node(press, tmp_path / "rules")
    with pytest.raises(Untrusted, match="number 2 has been seen"):
        node.begin()


def test_orders_that_were_seen_and_not_followed_are_remembered_too(tmp_path: Path) -> None:
    press = fleet(1, 2, 3)
    second = press.order(2, 2)
    node = Node(press, tmp_path / "rules").begin()
    press.order(3, 3)
    node.line.cut = "editions/"
    assert not node.poll()
    node.close()
    press.blobs.put("orders/current.json", second.signed)
    again = Node(press, tmp_path / "rules").begin()
    again.line.cut = "editions/"
    assert again.runs == (2, 0)
    assert not again.poll()
    assert again.failed("orders", "replayed") == 1
    again.line.cut = None
    assert again.follower.look()  # the rollout themselves were kept, so they can be followed
    assert again.runs == (3, 0)


def test_a_node_with_another_name_runs_what_is_there_until_it_knows_better(tmp_path: Path) -> None:
    press = fleet(1, 2)
    press.order(2, 2, pins={"n1": 1})
    Node(press, tmp_path / "rules", name="n1").begin().close()
    node = Node(press, tmp_path / "rules", name="n2")
    node.line.cut = ""
    assert node.begin().runs == (1, 0)
    node.line.cut = None
    assert node.follower.look()  # by the same rollouts
    assert node.runs == (2, 0)
    press.order(3, 2, pins={"n2": 1})
    assert node.poll()
    assert node.runs == (1, 0)


def test_a_full_disk_is_trouble_and_nothing_more(tmp_path: Path) -> None:
    press = fleet(1, 2)
    (tmp_path / "rules").write_text("a file where the folder should be")
    node = Node(press, tmp_path / "rules").begin()
    press.order(2, 2)
    assert node.poll()
    assert node.runs == (2, 0)
    assert "rules" in node.failure["disk"]
    (tmp_path / "rules").unlink()
    assert not node.poll()  # it is tried again
    assert node.failure == {}
    node.close()
    again = Node(press, tmp_path / "rules")
    again.line.cut = ""
    assert again.begin().runs == (2, 0)


def test_two_workers_may_share_a_folder_and_one_of_them_writes(tmp_path: Path) -> None:
    press = fleet(1, 2)
    one, two = (Node(press, tmp_path / "rules", name=name).begin() for name in ("w1", "w2"))
    press.order(2, 2)
    assert two.poll()
    assert one.poll()
    assert one.failure == two.failure == {}
    one.close()
    press.release(3, 2, a=3)
    press.order(3, 3)
    assert two.poll()  # it writes now, and has all it needs
    assert two.failure == {}
    two.close()
    again = Node(press, tmp_path / "rules")
    again.line.cut = ""
    assert again.begin().runs == (3, 0)


def test_a_worker_that_comes_to_write_begins_with_what_nobody_has_written(tmp_path: Path) -> None:
    press = fleet(1, 2, 3)
    press.order(2, 2, pins={"w1": 1})
    one, two = (Node(press, tmp_path / "rules", name=name).begin() for name in ("w1", "w2"))
    assert two.follower.look()
    assert (one.runs, two.runs) == ((1, 0), (2, 0))
    one.close()
    press.order(3, 3)
    assert two.poll()  # by a delta, from rules that only the other could have kept
    assert two.follower.metrics().deltas == 2
    two.close()
    again = Node(press, tmp_path / "rules", name="w2")
    again.line.cut = ""
    assert again.begin().runs == (3, 0)


def test_a_kept_edition_cannot_be_given_the_rules_of_another(tmp_path: Path) -> None:
    press = fleet(1, 2)
    press.order(2, 2)
    folder = tmp_path / "rules"
    Node(press, folder).begin().close()
    first = press.store.release(1)
    assert first is not None
    state = json.loads((folder / "state.json").read_text())
    state["chains"][0].append({"edition": first.signed.decode(), "part": ""})
    (folder / "state.json").write_text(json.dumps(state))
    node = Node(press, folder)
    node.line.cut = ""
    with pytest.raises(Unavailable, match="not those it was kept for"):
        node.begin()


# What there is to see.


def test_a_status_says_what_runs_and_what_is_wrong() -> None:
    press = fleet(1, 2)
    node = Node(press, name="limiter-7").begin()
    press.order(2, 1, canary=Canary(2, BY_CALLERS, 100, "s"))
    node.clock.advance(s=1)
    node.poll()
    node.line.cut = ""
    node.poll()
    status = node.follower.status()
    assert status["version"] == "1"
    assert status["files"][0]["name"] == "rules.yaml"  # type: ignore[index]
    assert status["last_load"] == {
        "result": "accepted",
        "file": None,
        "line": None,
        "reason": "",
        "at": "2001-09-09T01:46:41.000000Z",
    }
    assert status["fleet"] == {
        "node": "limiter-7",
        "orders": 2,
        "orders_seen": 2,
        "version": 1,
        "canary": 2,
        "share": 100,
        "since": "2001-09-09T01:46:41.000000Z",
        "took_us": 1_000_000,
        "checked": "2001-09-09T01:46:41.000000Z",
        "expires": None,
        "trouble": {"orders": "the blob store is unavailable: the line is cut"},
    }
    assert json.dumps(status)


def test_a_report_and_the_figures_say_the_same() -> None:
    press = fleet(1, 2)
    node = Node(press, counts=lambda: {"1/CRITICAL": [10, 2]}).begin()
    signed_order = press.order(2, 2, at_us=START_US + 1_000_000)
    node.clock.advance(s=1.25)
    node.follower.notify(signed_order.signed, START_US + 1_100_000)
    node.follower.look()
    report, metrics = node.follower.report(), node.follower.metrics()
    assert report.counts == {"1/CRITICAL": [10, 2]}
    assert (report.node, report.failure, report.at_us) == ("n1", "", node.clock.now_us())
    assert (report.rollout, report.version, report.canary) == (2, 2, 0)
    assert (metrics.rollout, metrics.version, metrics.canary) == (2, 2, 0)
    assert report.took_us == metrics.took_us == 150_000
    assert report.since_us == metrics.since_us == node.clock.now_us()
    assert metrics.made_us == START_US
    assert metrics.checked_us == node.clock.now_us()
    assert (metrics.accepted, metrics.refused) == node.follower.counts == (2, 0)


def test_a_node_is_not_late_for_what_was_ordered_before_it_came() -> None:
    press = fleet(1)
    clock = HandClock()
    clock.advance(s=86_400)
    node = Node(press, clock=clock).begin()
    assert node.follower.report().took_us == 0


def test_troubles_are_told_in_the_report_by_their_parts(tmp_path: Path) -> None:
    press = fleet(1)
    (tmp_path / "rules").write_text("")
    node = Node(press, tmp_path / "rules").begin()
    node.line.cut = ""
    node.poll()
    failure = node.follower.report().failure
    assert failure.startswith("orders: the blob store is unavailable: the line is cut; disk: ")


def test_a_reload_asks_at_once() -> None:
    press = fleet(1, 2)
    node = Node(press, every_s=3_600).begin()
    node.follower.look()
    press.order(2, 2)
    assert not node.follower.look()
    node.follower.reload()
    assert node.runs == (2, 0)


def test_it_asks_as_often_as_it_is_told_and_not_all_at_once() -> None:
    press = fleet(1)
    node = Node(press, every_s=10).begin()
    seconds = []
    for second in range(200):
        before = len(node.line.calls)
        node.follower.look()
        seconds += [second] if len(node.line.calls) > before else []
        node.clock.advance(s=1)
    gaps = [after - before for before, after in itertools.pairwise(seconds)]
    assert set(gaps) <= {9, 10, 11}
    assert len(set(gaps)) > 1


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"node": "a/b"}, "node"),
        ({"node": "a", "every_s": 0}, "every_s"),
        ({"node": "a", "report_every_s": 1e9}, "report_every_s"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, object], field: str) -> None:
    press = fleet(1)
    store = ReleaseStore(press.blobs, press.signer.verifier())
    with pytest.raises(BadValue, match=field):
        Follower(store, print, **settings)  # type: ignore[arg-type]
