"""Rulebook node: the follower of a rulebook, made of the settings of a service.

Imported only when a rulebook is to be followed: signatures and snapshots take packages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.event_log import EventLog
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.follower import Follower
from sluicegate.rules.releases.signatures import Verifier
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.service.common_settings import RulesSettings
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.event_logs import open_log
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, counter, gauge

# A log tells at once what there is; the looks beside it are for when it fails.
LOOKS_BESIDE: Final = 10
_FILES: Final = "files:"
_log: Final = logging.getLogger("sluicegate.rules")
_Opened = TypeVar("_Opened")


def node_of(settings: RulesSettings, worker: int) -> str:
    """What this process is called in its fleet."""
    name = settings.node or socket.gethostname()
    return f"{name}-{worker}" if settings.workers > 1 else name


def follow(
    settings: RulesSettings,
    worker: int,
    put_in_force: Callable[[FleetBooks], None],
    counts: Callable[[], Mapping[str, Sequence[int]]],
    *,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
) -> tuple[Follower, EventLog | None]:
    """A follower that is yet to be started, and the log it listens to, to be closed after it."""
    node = node_of(settings, worker)
    blobs = _open(open_blobs, settings.rulebook, "--rulebook")
    log = None
    if settings.rulebook_events:
        log = _open(open_log, settings.rulebook_events, "--rulebook-events")
        folder = settings.rulebook_events.removeprefix(_FILES)
        if folder != settings.rulebook_events and not os.path.isdir(folder):
            _log.warning(
                "there is no folder %s (--rulebook-events); changes will come late", folder
            )
    every_s = settings.rulebook_every_s * (1 if log is None else LOOKS_BESIDE)
    follower = Follower(
        ReleaseStore(blobs, Verifier.read(settings.rulebook_keys)),
        put_in_force,
        node=node,
        folder=os.path.join(settings.rulebook_folder, node),
        announcements=log,
        every_s=every_s,
        report_every_s=settings.rulebook_report_s,
        loop=loop,
        clock=clock,
        counts=counts,
    )
    return follower, log


def start(follower: Follower, settings: RulesSettings) -> Follower:
    """Put in force what there is, and follow; where that is nothing, it says why."""
    try:
        return follower.start()
    except Unavailable as error:
        problem = error.detail
        folder = settings.rulebook.removeprefix(_FILES)
        if folder != settings.rulebook and not os.path.isdir(folder):
            problem = f"{problem}; there is no folder {folder}"
        raise Unavailable("the rulebook", problem) from None


def _open(opening: Callable[[str], _Opened], url: str, flag: str) -> _Opened:
    """What the URL of this flag opens; what is wrong with it is told of the flag."""
    try:
        return opening(url)
    except BadValue as error:
        # A URL may hold a secret; the error has taken it out.
        raise BadValue(flag, error.value, error.remedy) from None


def follower_metrics(follower: Follower, now_us: int) -> Iterable[MetricFamily]:
    """What a node's rules are, and how old."""
    metrics = follower.metrics()
    yield gauge("sluicegate_rules_version", "The version of the rules in force.", metrics.version)
    yield gauge(
        "sluicegate_rules_canary_version", "The version on trial; 0 is none.", metrics.canary
    )
    yield gauge(
        "sluicegate_rules_orders", "The number of the rollout that is followed.", metrics.rollout
    )
    for name, meaning, at_us in (
        ("made", "Since the rules in force were made", metrics.made_us),
        ("in_force", "Since they were put in force", metrics.since_us),
        ("checked", "Since it was last found that there is no newer rollout", metrics.checked_us),
    ):
        age_s = max(now_us - at_us, 0) / 1e6 if at_us else 0.0
        yield gauge(f"sluicegate_rules_{name}_age_seconds", f"{meaning}, in seconds.", age_s)
    if metrics.expires_us:
        yield gauge(
            "sluicegate_rules_expire_in_seconds",
            "Until the newest rollout that was heard of expires; below 0 it has.",
            (metrics.expires_us - now_us) / 1e6,
        )
    yield gauge(
        "sluicegate_rules_lag_seconds",
        "From the announcement of the rules in force until they were.",
        metrics.took_us / 1e6,
    )
    yield counter("sluicegate_rules_fetched_whole", "Snapshots fetched whole.", metrics.whole)
    yield counter("sluicegate_rules_fetched_deltas", "Deltas fetched.", metrics.deltas)
    failure_counts = [
        MetricSample("_total", (("part", part), ("kind", kind)), count)
        for (part, kind), count in sorted(metrics.failure_counts.items())
    ]
    yield MetricFamily(
        "sluicegate_rules_failures", "counter", "", "What failed in following.", failure_counts
    )
