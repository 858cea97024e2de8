"""Blobs in memory keep the contract, and their bound."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluicegate.contracts.blob_store import BlobStore
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.blobs.memory import MemoryBlobs
from tests.stores.blobs.conformance import BlobStoreConformance


class TestMemory(BlobStoreConformance):
    @pytest.fixture
    def url(self) -> str:
        return "memory:"

    @pytest.fixture
    def again(self, blobs: BlobStore) -> Callable[[], BlobStore]:
        return lambda: blobs


def test_each_store_in_memory_is_its_own() -> None:
    one, other = open_blobs("memory:"), open_blobs("memory:")
    one.put("a", b"x")
    assert other.get("a", bytes_max=9) is None


def test_a_store_in_memory_is_told_nothing() -> None:
    with pytest.raises(BadValue, match="write memory: alone"):
        open_blobs("memory:name")


def test_a_full_store_refuses_more_and_what_is_replaced_or_forgotten_makes_room() -> None:
    blobs = MemoryBlobs(bytes_max=10)
    blobs.put("a", b"123456")
    blobs.put("b", b"1234")
    with pytest.raises(Unavailable, match="10 bytes of 10"):
        blobs.put("c", b"1")
    with pytest.raises(BadValue, match="11 bytes"):
        blobs.put("c", b"12345678901")
    blobs.put("a", b"12345")
    blobs.put("c", b"1")
    blobs.delete("b")
    blobs.put("d", b"1234")
    assert blobs.names() == ("a", "c", "d")


def test_what_was_given_in_a_buffer_does_not_change_with_it() -> None:
    blobs = MemoryBlobs()
    buffer = bytearray(b"one")
    blobs.put("a", buffer)  # type: ignore[arg-type]
    buffer[:] = b"two"
    blob = blobs.get("a", bytes_max=9)
    assert blob is not None
    assert blob.data == b"one"
