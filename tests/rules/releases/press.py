"""A press: what a publisher does with a store, without a life of proposals around it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from sluicegate.contracts.blob_store import BlobStore
from sluicegate.contracts.rulebook import Canary, Release, Rollout
from sluicegate.rules.releases.signatures import (
    SignedRollout,
    Signer,
    new_key,
    sign_release,
    sign_rollout,
)
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.rules.snapshot.codec import pack
from sluicegate.rules.snapshot.delta import make_delta
from sluicegate.rules.snapshot.snapshot import RulesSnapshot, compile_snapshot
from sluicegate.stores.blobs.memory import MemoryBlobs
from sluicegate.testing import START_US

COMMIT = "c0ffee" * 6 + "c0de"


def new_signer() -> Signer:
    with TemporaryDirectory() as folder:
        return Signer.read(new_key(Path(folder, "keys")).private)


SIGNER = new_signer()


def files(**limits: int) -> dict[str, bytes]:
    """One file with a rule for each name."""
    rules = [
        {"rule_id": name, "resource_path": f"/{name}", "limit": limit, "window_seconds": 60}
        for name, limit in limits.items()
    ]
    return {"rules.yaml": json.dumps({"version": 1, "rules": rules}).encode()}


class Press:
    """Prints releases and gives rollouts."""

    def __init__(self, blobs: BlobStore | None = None, signer: Signer = SIGNER) -> None:
        self.blobs = MemoryBlobs() if blobs is None else blobs
        self.signer = signer
        self.store = ReleaseStore(self.blobs, signer.verifier())
        self.printed: dict[int, RulesSnapshot] = {}

    def release(self, version: int, *deltas_from: int, **limits: int) -> Release:
        """A release whose rules these are, with deltas from earlier ones; in the store."""
        snapshot = compile_snapshot(files(**limits))
        self.printed[version] = snapshot
        before = [self.printed[one] for one in deltas_from]
        release = Release(
            version=version,
            commit=COMMIT,
            content=snapshot.content,
            snapshot=self.store.put_snapshot(pack(snapshot)),
            bytes_unpacked=1_000,
            rules=snapshot.rules,
            made_us=START_US,
            deltas={one.content: self.store.put_delta(make_delta(one, snapshot)) for one in before},
        )
        return self.store.put_release(sign_release(release, self.signer).signed)

    def signed(
        self,
        number: int,
        live: int,
        *,
        canary: Canary | None = None,
        pins: Mapping[str, int] | None = None,
        back: bool = False,
        at_us: int = START_US,
        expires_us: int = 0,
    ) -> SignedRollout:
        rollout = Rollout(number, live, canary, pins or {}, back, "because", at_us, expires_us)
        return sign_rollout(rollout, self.signer)

    def order(
        self,
        number: int,
        live: int,
        *,
        canary: Canary | None = None,
        pins: Mapping[str, int] | None = None,
        back: bool = False,
        at_us: int = START_US,
        expires_us: int = 0,
    ) -> SignedRollout:
        """Give rollouts."""
        order_signed = self.signed(
            number,
            live,
            canary=canary,
            pins=pins,
            back=back,
            at_us=at_us,
            expires_us=expires_us,
        )
        self.store.put_rollout(order_signed.signed)
        return order_signed
