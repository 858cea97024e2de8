"""Vitals: how a rulebook's server fares, for the machines that watch it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, final

from sluicegate.apps.rulebook.assembly import Assembly
from sluicegate.contracts.rulebook import STATES
from sluicegate.doors.http.rules.handler import RulesHttpStats
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, page

TROUBLES: Final = ("remote", "pushes", "publishing", "canary", "tidying", "branch", "nodes")


@final
class Vitals:
    """A `doors.http.health.Vitals`."""

    __slots__ = ("_assembly", "door")

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self.door: Callable[[], RulesHttpStats] | None = None

    def metrics(self) -> str:
        """All metrics as Prometheus text."""
        return page(list(self._families())).decode()

    def not_ready(self) -> str:
        """Why this instance should get no traffic; empty if it should."""
        return ""

    def _families(self) -> Iterable[MetricFamily]:
        publishing = self._assembly.publishing
        state = publishing.ledger.state()
        fleet = state.fleet
        run = fleet.canary
        for name, meaning, value in (
            ("live_version", "The version that is live; 0 is none.", fleet.live),
            ("canary_version", "The version on trial; 0 is none.", run.state.version if run else 0),
            ("canary_share", "Of 10,000 who have it.", run.state.share if run else 0),
            ("orders_decided", "The number of the newest orders.", fleet.rollouts),
            ("orders_told", "The number of those that were announced.", fleet.delivered.rollouts),
        ):
            yield _gauge(f"sluicegate_rulebook_{name}", meaning, value)
        counts = dict.fromkeys(STATES, 0)
        for proposal in state.proposals.values():
            counts[proposal.state] = counts.get(proposal.state, 0) + 1
        yield MetricFamily(
            "sluicegate_rulebook_proposals",
            "gauge",
            "",
            "Proposals by state.",
            [MetricSample("", (("state", name),), count) for name, count in counts.items()],
        )
        failures = publishing.upkeep.failures
        yield MetricFamily(
            "sluicegate_rulebook_trouble",
            "gauge",
            "",
            "1 while something does not go as it should.",
            [MetricSample("", (("what", name),), int(name in failures)) for name in TROUBLES],
        )
        if self.door is not None:
            door = self.door()
            yield _gauge("sluicegate_rulebook_calls", "Calls under way.", door.calls)
            yield _gauge("sluicegate_rulebook_waits", "Waits for nodes under way.", door.waits)
            for name, meaning, count in (
                ("calls_done", "Calls that were answered.", door.calls_done),
                ("calls_refused", "Calls beyond the bounds.", door.calls_refused),
                ("calls_replayed", "Calls that were repeated, and done once.", door.replayed),
            ):
                samples = [MetricSample("_total", (), count)]
                yield MetricFamily(f"sluicegate_rulebook_{name}", "counter", "", meaning, samples)


def _gauge(name: str, meaning: str, value: float) -> MetricFamily:
    return MetricFamily(name, "gauge", "", meaning, [MetricSample("", (), value)])
