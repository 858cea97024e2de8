"""Metrics: what the parts of a pub/sub node count. Nothing is counted here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter

from sluicegate.apps.pubsub.fan_out import FanOut
from sluicegate.apps.pubsub.histories import Histories
from sluicegate.apps.pubsub.nodes import Nodes
from sluicegate.apps.pubsub.presence import Presence
from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.cluster.node import ClusterNode
from sluicegate.doors.websocket.protocol import WebSocketCounts
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, counter, counters, gauge


def of_messages(
    histories: Histories, refused: Mapping[str, int], nodes: Nodes | None
) -> Iterable[MetricFamily]:
    """What became of what was published, and what the history has of it."""
    total = histories.sum_of
    yield counter("sluicegate_pubsub_accepted", "Messages accepted.", total(attrgetter("accepted")))
    # What is refused at a channel's home is counted there.
    reasons = Counter(refused)
    if nodes is not None:
        reasons.update(nodes.refused)
    yield counters(
        "sluicegate_pubsub_refused",
        "Messages refused, by the limit.",
        [MetricSample("_total", (("reason", name),), count) for name, count in reasons.items()],
    )
    yield counter(
        "sluicegate_pubsub_failed",
        "Messages that could not be made durable.",
        total(attrgetter("failed")),
    )
    yield gauge(
        "sluicegate_pubsub_channels", "Channels in use.", total(lambda one: len(one.channels))
    )
    yield gauge(
        "sluicegate_pubsub_history_bytes", "Bytes of the history.", total(attrgetter("bytes"))
    )
    yield counters(
        "sluicegate_pubsub_history_cut",
        "Messages that left the history, by the bound.",
        [
            MetricSample("_total", (("bound", "bytes"),), total(attrgetter("cut_by_bytes"))),
            MetricSample("_total", (("bound", "age"),), total(attrgetter("cut_by_age"))),
        ],
    )
    yield gauge(
        "sluicegate_pubsub_channels_written",
        "Channels with messages.",
        total(attrgetter("written")),
    )


def of_sockets(counts: WebSocketCounts, fan_out: FanOut) -> Iterable[MetricFamily]:
    """Who is connected, and what was sent to them."""
    yield gauge("sluicegate_pubsub_sockets", "WebSocket connections.", counts.open)
    yield counter("sluicegate_pubsub_sent", "Messages sent over WebSockets.", fan_out.delivered)
    yield counter(
        "sluicegate_pubsub_gaps", "Losses of continuity told over WebSockets.", fan_out.gaps
    )
    yield counter(
        "sluicegate_pubsub_rested",
        "Times a WebSocket was read later, for it sent too fast.",
        counts.rested,
    )


def of_accounts(limiter: AccountLimiter, presence: Presence) -> Iterable[MetricFamily]:
    """Who is in channels, and how accounts fare."""
    node, _ = limiter.stats()
    yield gauge("sluicegate_pubsub_present", "Members of channels.", len(presence))
    yield gauge("sluicegate_pubsub_present_bytes", "Bytes of members.", presence.bytes)
    yield gauge("sluicegate_pubsub_accounts", "Accounts in use.", node.accounts)
    yield gauge(
        "sluicegate_pubsub_accounts_suppressed",
        "Accounts of whose messages a share is refused.",
        node.suppressed_accounts,
    )


def of_cluster(node: ClusterNode, nodes: Nodes | None) -> Iterable[MetricFamily]:
    """What was said to the other nodes, and who of them does not answer."""
    stats = node.stats()
    yield counters(
        "sluicegate_pubsub_reports",
        "Reports to account masters on other nodes.",
        [
            MetricSample("_total", (("outcome", "answered"),), stats.answered),
            MetricSample("_total", (("outcome", "failed"),), stats.failed),
        ],
    )
    yield counter(
        "sluicegate_pubsub_reports_forged",
        "Reports refused, for they were in the name of another node.",
        stats.forged,
    )
    yield counter(
        "sluicegate_pubsub_forwarded",
        "Messages passed on to the homes of their channels.",
        0 if nodes is None else nodes.forwarded,
    )
    yield gauge(
        "sluicegate_pubsub_nodes_failing",
        "Nodes that do not answer this one.",
        len(node.failing),
    )
