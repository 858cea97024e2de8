from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.shadow.capture.key import CaptureKey, open_key, read_key
from sluicegate.shadow.entities import NOBODY, entity_of
from sluicegate.shadow.sampling import Sample
from sluicegate.shadow.traffic import ALL
from tests.shadow.capture.world import KEY


def mesh(*descriptors: list[tuple[str, str]]) -> MeshRequest:
    return MeshRequest("shop", [Descriptor(one) for one in descriptors])


def test_a_key_is_made_once_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "capture.key"
    first = open_key(str(path))
    assert open_key(str(path)).fingerprint == first.fingerprint
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["capture.key"]
    assert path.read_text().startswith("sluicegate-capture-key-1 ")
    assert first.fingerprint not in path.read_text()


def test_of_several_who_make_a_key_at_once_all_have_the_same(tmp_path: Path) -> None:
    fingerprints: list[str] = []
    ready = threading.Barrier(8)

    def make() -> None:
        ready.wait()
        fingerprints.append(open_key(str(tmp_path / "key")).fingerprint)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fingerprints) == 8
    assert len(set(fingerprints)) == 1


@pytest.mark.parametrize("mode", [0o644, 0o602, 0o620, 0o660, 0o777])
def test_a_key_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    open_key(str(path))
    path.chmod(mode)
    with pytest.raises(BadValue, match="chmod 600"):
        read_key(str(path))


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440])
def test_a_mounted_secret_may_be_the_groups_to_read(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    key = open_key(str(path))
    path.chmod(mode)
    assert read_key(str(path)).fingerprint == key.fingerprint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with"),
        ("hello", "begins with"),
        ("sluicegate-capture-key-2 00", "upgrade sluicegate"),
        ("sluicegate-capture-key-1 xyz", "64 hexadecimal"),
        ("sluicegate-capture-key-1 00", "64 hexadecimal"),
    ],
)
def test_a_file_that_is_no_key_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(BadValue, match=message):
        open_key(str(path))


def test_a_key_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="capture key"):
        open_key(str(tmp_path / "file" / "key"))


def test_a_key_does_not_show_itself() -> None:
    assert "6b6b" not in repr(KEY)
    with pytest.raises(BadValue, match="32"):
        CaptureKey(b"short")


@given(st.text(max_size=20))
def test_an_entity_is_in_every_share_from_one_of_its_own_on(entity: str) -> None:
    own = KEY.place(entity) * ALL >> 64
    assert not Sample(KEY, own).holds(entity)
    assert Sample(KEY, own + 1).holds(entity)
    assert Sample(KEY, ALL).holds(entity)
    assert not Sample(KEY, 0).holds(entity)


def test_a_share_is_about_that_share_whatever_the_names() -> None:
    for prefix in ("user-", "", "0000000"):
        sample = Sample(KEY, 2_000)
        count = sum(sample.holds(f"{prefix}{n}") for n in range(10_000))
        assert 1_850 < count < 2_150


def test_forgetting_an_entity_changes_nothing() -> None:
    small, large = Sample(KEY, 5_000, memo_max=4), Sample(KEY, 5_000)
    names = [f"user-{n * n % 50}"[: 1 + n % 8] for n in range(500)]
    assert [small.holds(name) for name in names] == [large.holds(name) for name in names]
    assert all(large.holds(name) == Sample(KEY, 5_000).holds(name) for name in names)


def test_another_key_draws_others() -> None:
    other = Sample(CaptureKey(b"o" * 32), 5_000)
    mine = Sample(KEY, 5_000)
    assert 20 < sum(mine.holds(str(n)) != other.holds(str(n)) for n in range(100)) < 80


def test_the_entity_of_a_check_is_its_user() -> None:
    assert entity_of(CheckRequest("ann", "/a")) == "ann"


def test_the_entity_of_a_mesh_is_the_first_pair_that_is_no_constant_of_a_route() -> None:
    assert entity_of(mesh([("tenant", "acme"), ("path", "/a")])) == "shop/tenant=acme"
    assert entity_of(mesh([("generic_key", "slow"), ("ip", "::1")])) == "shop/ip=::1"
    assert entity_of(mesh([("generic_key", "slow")], [("ip", "::1")])) == "shop/ip=::1"
    assert entity_of(mesh([("generic_key", "slow")])) == "shop/generic_key=slow"
    constants = [("generic_key", "slow"), ("header_match", "new")]
    assert entity_of(mesh(constants)) == "shop/generic_key=slow"


def test_named_keys_go_before() -> None:
    query = mesh([("path", "/a"), ("tenant", "acme")], [("user", "ann")])
    assert entity_of(query, ("user", "tenant")) == "shop/user=ann"
    assert entity_of(query, ("tenant",)) == "shop/tenant=acme"
    assert entity_of(query, ("other",)) == "shop/path=/a"


def test_a_descriptor_with_a_secret_singles_nobody_out() -> None:
    query = mesh([("api_key", "k"), ("tenant", "acme")], [("path", "/a")])
    assert entity_of(query, ("api_key", "tenant")) == "shop/path=/a"
    assert entity_of(mesh([("api_key", "k"), ("tenant", "acme")])) == NOBODY


def test_a_sample_needs_a_key_and_a_sensible_share() -> None:
    assert Sample(None, ALL).holds("ann")
    with pytest.raises(BadValue, match="give a key"):
        Sample(None, 100)
    with pytest.raises(BadValue, match="share"):
        Sample(KEY, ALL + 1)
    with pytest.raises(BadValue, match="memo_max"):
        Sample(KEY, 1, memo_max=1)
