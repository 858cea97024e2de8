"""App: the rulebook's server: the admin API, and what happens by itself (pushes, announcements,
canaries).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, Final, final

from sluicegate import __version__
from sluicegate.apps.rulebook.assembly import Assembly
from sluicegate.apps.rulebook.settings import RulebookSettings
from sluicegate.contracts.access import Grant, PeopleAccess
from sluicegate.contracts.rulebook import STATES
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.rules.handler import RulesHttp
from sluicegate.doors.http.rules.settings import RulesHttpSettings
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.policies.access import KnownCallers
from sluicegate.service.app import App, Site
from sluicegate.service.siblings import ALONE, WorkerId
from sluicegate.shadow.report.page import page_of
from sluicegate.shadow.report.text import text_of
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, counter, gauge

ANSWER_S_MAX: Final = 50.0  # to try a change on a large capture takes a while
FAILURES: Final = (
    "remote",
    "pushes",
    "publishing",
    "renewal",
    "canary",
    "tidying",
    "branch",
    "nodes",
)


@final
class RulebookApp(App[RulebookSettings]):
    """`sluicegate rules serve`."""

    name: ClassVar[str] = "rules"

    def __init__(self, settings: RulebookSettings, worker: WorkerId = ALONE) -> None:
        super().__init__(settings, worker)
        self._assembly = Assembly(settings, serves=True)
        self._http: RulesHttp | None = None

    async def start(self) -> None:
        """Begin what happens by itself."""
        self._assembly.publishing.start()

    async def close(self) -> None:
        """Close the door's threads and the rulebook."""
        if self._http is not None:
            self._http.close()
        self._assembly.close()

    def access(self) -> PeopleAccess:
        """Who may do what; where nobody is named, whoever is on this machine may read."""
        if self.settings.access or self.settings.token:
            return super().access()
        return KnownCallers((), anonymous={Grant.READ_RULES})

    def http(self, site: Site) -> HttpHandler:
        """The admin API."""
        self._http = RulesHttp(
            self._assembly.admin,
            site.status,
            site.access,
            self.clock,
            RulesHttpSettings(
                hosts=site.hosts,
                metrics_open=self.settings.metrics_open,
                version=__version__,
            ),
            reports={"html": page_of, "text": text_of},
        )
        return self._http

    def http_settings(self) -> HttpSettings:
        """Bounds of HTTP."""
        return replace(super().http_settings(), answer_timeout_s=ANSWER_S_MAX)

    def summary(self) -> str:
        """Which release is live."""
        live = self._assembly.publishing.ledger.state().fleet.live
        folder = os.path.abspath(self.settings.folder)
        access = self.settings.access or self.settings.token
        reads = "" if access else "; --access or --token says who may change it, now nobody may"
        return (
            f"version {live} is live in {folder}{reads}"
            if live
            else f"{folder} has no version yet{reads}"
        )

    def metrics(self) -> Iterable[MetricFamily]:
        """The fleet, the proposals, what fails, and the calls."""
        publishing = self._assembly.publishing
        state = publishing.ledger.state()
        fleet = state.fleet
        run = fleet.canary
        for name, meaning, value in (
            ("live_version", "The version that is live; 0 is none.", fleet.live),
            ("canary_version", "The version on trial; 0 is none.", run.state.version if run else 0),
            ("canary_share", "Of 10,000 who have it.", run.state.share if run else 0),
            ("orders_decided", "The number of the newest rollout.", fleet.rollouts),
            ("orders_told", "The number of those that were announced.", fleet.delivered.rollouts),
        ):
            yield gauge(f"sluicegate_rulebook_{name}", meaning, value)
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
            [MetricSample("", (("what", name),), int(name in failures)) for name in FAILURES],
        )
        if self._http is not None:
            door = self._http.stats()
            yield gauge("sluicegate_rulebook_calls", "Calls under way.", door.calls)
            yield gauge("sluicegate_rulebook_waits", "Waits for nodes under way.", door.waits)
            for name, meaning, count in (
                ("calls_done", "Calls that were answered.", door.calls_done),
                ("calls_refused", "Calls beyond the bounds.", door.calls_refused),
                ("calls_replayed", "Calls that were repeated, and done once.", door.replayed),
            ):
                yield counter(f"sluicegate_rulebook_{name}", meaning, count)
