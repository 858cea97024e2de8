"""Held releases: how a node gets the rules of a release, and the steps that it keeps on its disk.

Rules come from those that are held already: as they are where nothing but the version has changed,
by a delta where there is one, by several over the releases between where they are smaller than the
whole, or whole. The steps are kept rather than the result, for a delta is
thousands of times smaller than a snapshot, and packing a snapshot anew would take from the
decisions. When they have become many, the snapshot is fetched after all, to begin anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rulebook import Release
from sluicegate.rules.following.last_good import Chain, LastGood, ReleaseStep
from sluicegate.rules.releases.signatures import SignedRelease, Untrusted, open_release
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.rules.snapshot.book import book_of
from sluicegate.rules.snapshot.sections import DamagedSnapshot
from sluicegate.rules.snapshot.snapshot import RulesSnapshot

STEPS_MAX: Final = 100  # releases that are gone through to reach a newer one
NEAR: Final = 10  # how far back the release that a delta leads from is looked for
STEPS_FEW: Final = 16  # more are replaced by the snapshot, after the rules are in force
WHOLE: Final = "whole"
DELTA: Final = "delta"
SAME: Final = "same"


class HeldRelease(NamedTuple):
    """A release that a node runs: what it says, and how it came to it."""

    release: Release
    snapshot: RulesSnapshot
    book: ServiceRuleSet
    chain: Chain


class ObtainedRelease(NamedTuple):
    """A release that was not held, by which way it came, and why not by a shorter one."""

    held: HeldRelease
    way: str
    passed_over: str


def obtain(store: ReleaseStore, version: int, have: Sequence[HeldRelease]) -> ObtainedRelease:
    """The release of this version, verified and built, beside those that are held."""
    stored = store.release(version)
    if stored is None:
        raise Unavailable(f"release {version}", "it is not in the store")
    contents = {one.snapshot.content for one in have}
    for between in _path_to(store, stored.release, contents):
        try:
            have = [_pass_through(store, between, have), *have]
        except (Untrusted, DamagedSnapshot) as error:
            # The whole is the way round it.
            return _fetch_release(store, stored, (), have, passed_over=str(error))
    return _fetch_release(store, stored, have, have)


def _fetch_release(
    store: ReleaseStore,
    stored: SignedRelease,
    sources: Sequence[HeldRelease],
    have: Sequence[HeldRelease],
    *,
    passed_over: str = "",
) -> ObtainedRelease:
    """A release from `sources`, or whole; its book from those that are held."""
    release = stored.release
    fetched = store.snapshot(release, [one.snapshot for one in sources])
    source = next((one for one in sources if one.snapshot.content == fetched.before), None)
    step = ReleaseStep(
        stored.signed, "" if fetched.part is None else fetched.part.digest, fetched.data
    )
    chain = (step,) if source is None else (*source.chain, step)
    way = WHOLE if source is None else SAME if fetched.part is None else DELTA
    before = source if source is not None else have[0] if have else None
    result = _build(release, fetched.snapshot, None if before is None else before.book, chain)
    return ObtainedRelease(result, way, passed_over or fetched.passed_over)


def _path_to(store: ReleaseStore, release: Release, contents: set[str]) -> list[SignedRelease]:
    """The releases over which deltas lead to this one, oldest first; none where none are needed,
    or where they would be more than the whole."""
    path: list[SignedRelease] = []
    at, bytes_left = release, release.snapshot.bytes
    while at.content not in contents and contents.isdisjoint(at.deltas):
        before = _delta_source(store, at)
        if before is None or len(path) >= STEPS_MAX:
            return []
        bytes_left -= at.deltas[before.release.content].bytes
        if bytes_left <= 0:
            return []
        path.append(before)
        at = before.release
    return path[::-1]


def _delta_source(store: ReleaseStore, release: Release) -> SignedRelease | None:
    """The newest earlier release from whose rules a delta leads to this one."""
    if not release.deltas:
        return None
    for version in range(release.version - 1, max(release.version - NEAR, 0), -1):
        try:
            stored = store.release(version)
        except (Untrusted, BadValue):
            continue
        if stored is not None and stored.release.content in release.deltas:
            return stored
    return None


def _pass_through(
    store: ReleaseStore, between: SignedRelease, have: Sequence[HeldRelease]
) -> HeldRelease:
    """A release on the way, whose rules nobody will ask: it needs no book of its own."""
    release = between.release
    fetched = store.snapshot(release, [one.snapshot for one in have])
    source = next((one for one in have if one.snapshot.content == fetched.before), None)
    if source is None:
        raise Untrusted(f"the way to release {release.version}", fetched.passed_over)
    step = ReleaseStep(
        between.signed, "" if fetched.part is None else fetched.part.digest, fetched.data
    )
    return HeldRelease(release, fetched.snapshot, source.book, (*source.chain, step))


def restore(store: ReleaseStore, chain: Chain, before: ServiceRuleSet | None = None) -> HeldRelease:
    """The release that these steps lead to; each of them is verified as if it had just come."""
    first = _open(store, chain[0])
    snapshot, release = store.unpacked(first.release, chain[0].data), first.release
    for step in chain[1:]:
        release = _open(store, step).release
        if step.digest:
            snapshot = store.after_delta(release, snapshot, step.data)
        elif release.content != snapshot.content:
            raise Untrusted(f"release {release.version}", "its rules are not those it was kept for")
    return _build(release, snapshot, before, without_data(chain))


def rebase(store: ReleaseStore, current: HeldRelease, last_good: LastGood) -> HeldRelease:
    """The same release by one step, if its steps have become many or one of them is lost."""
    lost = any(
        step.digest and not step.data and not last_good.has(step.digest) for step in current.chain
    )
    if len(current.chain) <= STEPS_FEW and not lost:
        return current
    data = store.snapshot_data(current.release)
    return current._replace(
        chain=(ReleaseStep(current.chain[-1].signed, current.release.snapshot.digest, data),)
    )


def without_data(chain: Chain) -> Chain:
    """The steps, once their data is on the disk or will never be."""
    return tuple(step._replace(data=b"") for step in chain)


def _open(store: ReleaseStore, step: ReleaseStep) -> SignedRelease:
    return open_release(step.signed, store.verifier)


def _build(
    release: Release, snapshot: RulesSnapshot, before: ServiceRuleSet | None, chain: Chain
) -> HeldRelease:
    if snapshot.rules != release.rules:
        remedy = f"its snapshot has {snapshot.rules:,}; make the release anew"
        raise BadValue("edition.rules", release.rules, remedy)
    book = book_of(snapshot, version=str(release.version), before=before)
    return HeldRelease(release, snapshot, book, chain)
