"""What every blob store must do: a suite that any of them can be put through.

A subclass gives the fixture `url`, of a store that nobody has used. Where a URL means a new store
each time it is opened, it gives `again` as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from threading import Barrier

import pytest

from sluicegate.contracts.blob_store import NAME_CHARS_MAX, BlobStore
from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.stores.blob_stores import open_blobs

MANY = 1 << 20
WRITERS = 8
BAD_NAMES = (
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    "a/./b",
    ".hidden",
    "a/.hidden",
    "a b",
    "a\nb",
    "a\n",
    "a\0b",
    "a%2Fb",
    "a\\b",
    "a?b",
    "a#b",
    "a*",
    "ä",
    "a" * 251,
    "/".join("a" * 33),
    "ab/" * 170 + "abc",
)
GOOD_NAMES = (
    "a",
    "A",
    "0",
    "-",
    "_",
    "=",
    "a.b",
    "a..b",
    "a.",
    "orders/current.json",
    "sha256=AbC-_.=/x",
    "deep/" * 31 + "end",
    "a" * 250,
    "/".join(["b" * 250, "c" * 250, "d" * 10]),
)


def value(store: BlobStore, name: str) -> bytes | None:
    blob = store.get(name, bytes_max=MANY)
    return None if blob is None else blob.data


def tagged(store: BlobStore, name: str) -> tuple[bytes, str]:
    """The bytes and their tag; a digest, where the store gives one, is of these bytes."""
    blob = store.get(name, bytes_max=MANY)
    assert blob is not None
    assert blob.digest in ("", sha256(blob.data).hexdigest())
    return blob.data, blob.tag


class BlobStoreConformance:
    """The contract, told as stories."""

    @pytest.fixture
    def blobs(self, url: str) -> Iterator[BlobStore]:
        store = open_blobs(url)
        yield store
        store.close()

    @pytest.fixture
    def again(self, url: str) -> Callable[[], BlobStore]:
        """Opens the same store once more."""
        return lambda: open_blobs(url)

    # What is written is read.

    def test_what_was_never_written_is_not_there(self, blobs: BlobStore) -> None:
        assert blobs.get("orders/current.json", bytes_max=MANY) is None
        assert list(blobs.names()) == []

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 1_000], ids=len)
    def test_what_is_written_is_read_with_its_tag(self, blobs: BlobStore, data: bytes) -> None:
        tag = blobs.put("snapshots/one", data)
        assert tag
        assert tagged(blobs, "snapshots/one") == (data, tag)

    def test_what_is_written_again_is_replaced_and_has_another_tag(self, blobs: BlobStore) -> None:
        first = blobs.put("a", b"one")
        second = blobs.put("a", b"two")
        assert first != second
        assert tagged(blobs, "a") == (b"two", second)

    def test_a_second_store_of_the_same_url_sees_what_the_first_wrote(
        self, blobs: BlobStore, again: Callable[[], BlobStore]
    ) -> None:
        tag = blobs.put("a/b", b"one")
        other = again()
        assert tagged(other, "a/b") == (b"one", tag)
        assert other.put("a/b", b"two", if_tag=tag) != tag
        assert value(blobs, "a/b") == b"two"

    def test_more_bytes_than_asked_for_are_an_error_and_just_so_many_are_not(
        self, blobs: BlobStore
    ) -> None:
        blobs.put("a", b"12345")
        with pytest.raises(BadValue, match="5 bytes"):
            blobs.get("a", bytes_max=4)
        assert value(blobs, "a") == b"12345"
        whole = blobs.get("a", bytes_max=5)
        assert whole is not None
        assert whole.data == b"12345"

    def test_what_is_forgotten_is_not_there_and_may_be_forgotten_twice(
        self, blobs: BlobStore
    ) -> None:
        blobs.put("a/b", b"one")
        blobs.delete("a/b")
        blobs.delete("a/b")
        blobs.delete("never/was")
        assert blobs.get("a/b", bytes_max=MANY) is None
        assert list(blobs.names()) == []
        assert blobs.put("a/b", b"two", if_absent=True)

    # Conditions.

    def test_of_two_who_write_what_is_not_there_the_second_is_told(self, blobs: BlobStore) -> None:
        tag = blobs.put("orders/7.json", b"first", if_absent=True)
        for data in (b"second", b"first"):
            with pytest.raises(Conflict, match=r"orders/7\.json"):
                blobs.put("orders/7.json", data, if_absent=True)
        assert tagged(blobs, "orders/7.json") == (b"first", tag)

    def test_what_is_replaced_by_its_tag_is_replaced_once(self, blobs: BlobStore) -> None:
        old = blobs.put("a", b"one")
        new = blobs.put("a", b"two", if_tag=old)
        with pytest.raises(Conflict):
            blobs.put("a", b"three", if_tag=old)
        assert tagged(blobs, "a") == (b"two", new)
        assert blobs.put("a", b"three", if_tag=new) not in {old, new}

    def test_a_tag_of_what_is_gone_or_never_was_replaces_nothing(self, blobs: BlobStore) -> None:
        tag = blobs.put("a", b"one")
        blobs.delete("a")
        for name in ("a", "b", "c/d"):
            with pytest.raises(Conflict, match="nothing is there"):
                blobs.put(name, b"two", if_tag=tag)
        assert list(blobs.names()) == []

    def test_the_tag_of_another_blob_replaces_nothing(self, blobs: BlobStore) -> None:
        blobs.put("a", b"one")
        other = blobs.put("b", b"two")
        with pytest.raises(Conflict):
            blobs.put("a", b"three", if_tag=other)
        assert value(blobs, "a") == b"one"

    def test_conditions_that_cannot_come_true_are_refused(self, blobs: BlobStore) -> None:
        tag = blobs.put("a", b"one")
        with pytest.raises(BadValue, match="if_tag"):
            blobs.put("a", b"two", if_absent=True, if_tag=tag)
        with pytest.raises(BadValue, match="if_tag"):
            blobs.put("a", b"two", if_tag="")
        assert value(blobs, "a") == b"one"

    # Names.

    @pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name[:12]))
    def test_a_bad_name_is_refused_everywhere(self, blobs: BlobStore, name: str) -> None:
        for ask in (
            lambda: blobs.get(name, bytes_max=MANY),
            lambda: blobs.put(name, b"x"),
            lambda: blobs.put(name, b"x", if_absent=True),
            lambda: blobs.delete(name),
        ):
            with pytest.raises(BadValue, match=r"blob_store\.name"):
                ask()

    def test_every_good_name_is_taken_and_told_apart(self, blobs: BlobStore) -> None:
        assert all(len(name) <= NAME_CHARS_MAX for name in GOOD_NAMES)
        for name in GOOD_NAMES:
            blobs.put(name, name.encode(), if_absent=True)
        assert [value(blobs, name) for name in GOOD_NAMES] == [n.encode() for n in GOOD_NAMES]
        assert list(blobs.names()) == sorted(GOOD_NAMES)

    @pytest.mark.parametrize(("above", "below"), [("a", "a/b"), ("a/b", "a/b/c/d")])
    def test_a_name_is_blob_and_folder_or_the_second_is_refused(
        self, blobs: BlobStore, above: str, below: str
    ) -> None:
        for first, second in ((above, below), (below, above)):
            blobs.put(first, b"first")
            assert blobs.get(second, bytes_max=MANY) is None
            for conditions in ({}, {"if_absent": True}):
                names_kept = sorted([first, second])
                try:
                    blobs.put(second, b"second", **conditions)  # type: ignore[arg-type]
                except BadValue:
                    names_kept = [first]
                assert list(blobs.names()) == names_kept
                blobs.delete(second)
            assert value(blobs, first) == b"first"
            blobs.delete(first)

    def test_names_are_listed_by_prefix_and_in_order(self, blobs: BlobStore) -> None:
        names = ["a", "ab", "b/1", "b/10", "b/2", "b/c/d", "b-x", "bc/1", "B/1"]
        for name in reversed(names):
            blobs.put(name, b"x")
        for prefix in ("", "a", "ab", "abc", "b", "b/", "b/1", "b/c", "b/c/", "b/c/d", "b-", "c/"):
            matching = sorted(name for name in names if name.startswith(prefix))
            assert list(blobs.names(prefix)) == matching, prefix

    @pytest.mark.parametrize("prefix", ["/", "../", "a/../", "/etc/", ".", "a//", "a\0", "*"])
    def test_a_bad_prefix_is_refused(self, blobs: BlobStore, prefix: str) -> None:
        with pytest.raises(BadValue, match=r"blob_store\.name"):
            blobs.names(prefix)

    def test_more_names_than_asked_for_are_an_error_and_just_so_many_are_not(
        self, blobs: BlobStore
    ) -> None:
        for number in range(3):
            blobs.put(f"n/{number}", b"x")
        blobs.put("m", b"x")
        assert len(blobs.names("n/", names_max=3)) == 3
        with pytest.raises(BadValue, match="names_max"):
            blobs.names("n/", names_max=2)
        with pytest.raises(BadValue, match="names_max"):
            blobs.names("n/", names_max=-1)

    # Many at once.

    def test_of_many_threads_one_writes_what_is_not_there(self, blobs: BlobStore) -> None:
        start = Barrier(WRITERS)

        def write(writer: int) -> list[int]:
            start.wait(60)
            won = []
            for number in range(5):
                try:
                    blobs.put(f"orders/{number}", b"%d" % writer, if_absent=True)
                except Conflict:
                    pass
                else:
                    won.append(number)
            return won

        with ThreadPoolExecutor(WRITERS) as pool:
            won = list(pool.map(write, range(WRITERS)))
        assert sorted(number for numbers in won for number in numbers) == list(range(5))
        for writer, numbers in enumerate(won):
            for number in numbers:
                assert value(blobs, f"orders/{number}") == b"%d" % writer

    def test_no_update_of_many_threads_is_lost(self, blobs: BlobStore) -> None:
        blobs.put("count", b"0")
        start = Barrier(WRITERS)

        def add(_: int) -> None:
            start.wait(60)
            for _ in range(5):
                count_up(blobs, "count")

        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(add, range(WRITERS)))
        assert value(blobs, "count") == b"%d" % (5 * WRITERS)

    def test_a_reader_sees_one_whole_version_while_others_write(self, blobs: BlobStore) -> None:
        versions = {bytes([65 + n]) * (10_000 + n) for n in range(4)}
        blobs.put("a", min(versions))

        def write(data: bytes) -> None:
            for _ in range(5):
                blobs.put("a", data)

        with ThreadPoolExecutor(5) as pool:
            writing = [pool.submit(write, data) for data in versions]
            describe = {value(blobs, "a")}
            while not all(write.done() for write in writing):
                describe.add(value(blobs, "a"))
            for done in writing:
                done.result()
        assert describe <= versions

    # The end.

    def test_a_closed_store_says_so_and_may_be_closed_twice(self, blobs: BlobStore) -> None:
        blobs.put("a", b"one")
        blobs.close()
        blobs.close()
        for ask in (
            lambda: blobs.get("a", bytes_max=MANY),
            lambda: blobs.put("a", b"two"),
            lambda: blobs.put("a", b"two", if_absent=True),
            lambda: blobs.put("a", b"two", if_tag="x"),
            blobs.names,
            lambda: blobs.delete("a"),
        ):
            with pytest.raises(Unavailable, match="it is closed"):
                ask()


def count_up(blobs: BlobStore, name: str) -> None:
    """Read, add one, write by the tag; whoever was slower reads again."""
    while True:
        blob = blobs.get(name, bytes_max=MANY)
        assert blob is not None
        try:
            blobs.put(name, b"%d" % (int(blob.data) + 1), if_tag=blob.tag)
        except Conflict:
            continue
        return
