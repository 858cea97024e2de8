"""A node of a fleet, looked after by hand, on a store that can be cut off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sluicegate.contracts.blob_store import Blob, BlobStore
from sluicegate.contracts.errors import Unavailable
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.follower import Follower
from sluicegate.rules.releases.signatures import Verifier
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.testing import HandClock, SeededChance
from tests.rules.releases.press import Press


class Line:
    """The way to a store; it can be cut, for all names or for some."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs
        self.cut: str | None = None
        self.calls: list[str] = []

    def get(self, name: str, *, bytes_max: int) -> Blob | None:
        self._pass(name)
        self.calls.append(name)
        return self.blobs.get(name, bytes_max=bytes_max)

    def put(
        self, name: str, data: bytes, *, if_absent: bool = False, if_tag: str | None = None
    ) -> str:
        self._pass(name)
        return self.blobs.put(name, data, if_absent=if_absent, if_tag=if_tag)

    def names(self, prefix: str = "", *, names_max: int = 10_000) -> Sequence[str]:
        self._pass(prefix)
        return self.blobs.names(prefix, names_max=names_max)

    def delete(self, name: str) -> None:
        self._pass(name)
        self.blobs.delete(name)

    def close(self) -> None:
        self.blobs.close()

    def _pass(self, name: str) -> None:
        if self.cut is not None and name.startswith(self.cut):
            raise Unavailable("the blob store", "the line is cut")


class Node:
    """A follower without threads, and the books it has handed over."""

    def __init__(
        self,
        press: Press,
        folder: Path | None = None,
        *,
        name: str = "n1",
        clock: HandClock | None = None,
        verifier: Verifier | None = None,
        **settings: Any,
    ) -> None:
        self.line = Line(press.blobs)
        self.clock = HandClock() if clock is None else clock
        self.handed: list[FleetBooks] = []
        self.refuses: Exception | None = None
        trusted = press.signer.verifier() if verifier is None else verifier
        self.follower = Follower(
            ReleaseStore(self.line, trusted),
            self._adopt,
            node=name,
            folder=folder,
            clock=self.clock,
            chance=SeededChance(1),
            **settings,
        )

    def _adopt(self, books: FleetBooks) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.handed.append(books)

    def begin(self) -> Node:
        self.follower.begin()
        return self

    def poll(self) -> bool:
        return self.follower.poll()

    @property
    def runs(self) -> tuple[int, int]:
        """The live version and the canary's."""
        books = self.follower.books
        assert books is self.handed[-1]
        return books.live_version, books.canary_version

    @property
    def failure(self) -> dict[str, str]:
        return dict(self.follower.record.failures)

    def failed(self, part: str, kind: str) -> int:
        return self.follower.metrics().failure_counts[part, kind]

    def close(self) -> None:
        self.follower.close()
