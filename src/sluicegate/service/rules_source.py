"""Rules source: where a service takes its rules from, files that are watched or a rulebook.

Imports what a rulebook needs only where one is followed: signatures and snapshots take packages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.rules.service_rules import ServiceRules
from sluicegate.service.common_settings import RulesSettings
from sluicegate.service.siblings import WorkerId
from sluicegate.telemetry.prometheus import MetricFamily

_NO_RULES: Final = {
    "version": "",
    "files": [],
    "last_load": {
        "result": "accepted",
        "file": None,
        "line": None,
        "reason": "no rules were given (--rules)",
        "at": "",
    },
}


@final
class RulesSource:
    """The rules of one worker. `put_book` is handed those of files, `put_fleet` a rollout's.

    Both are called on the loop that serves. `counts` says for the reports to the rulebook what was
    decided, by release and class.
    """

    def __init__(
        self,
        put_book: Callable[[ServiceRuleSet], None],
        put_fleet: Callable[[FleetBooks], None],
        counts: Callable[[], Mapping[str, Sequence[int]]] = dict,
    ) -> None:
        self._put_book = put_book
        self._put_fleet = put_fleet
        self._counts = counts
        self._rules: Any = None
        self._follower: Any = None
        self._events: Any = None

    def start(
        self, settings: RulesSettings, worker: WorkerId, clock: Clock, **options: Any
    ) -> None:
        """Read the rules and follow them; raise what is wrong with them."""
        loop = asyncio.get_running_loop()
        if settings.rulebook:
            from sluicegate.service.rulebook_node import follow, start  # noqa: PLC0415

            follower, self._events = follow(
                settings, worker.number, self._put_fleet, self._counts, loop=loop, clock=clock
            )
            self._rules = self._follower = start(follower, settings)
        elif settings.rules:
            self._rules = ServiceRules(
                settings.rules, self._put_book, loop=loop, clock=clock, **options
            ).start()

    def reload(self) -> None:
        """Look now."""
        if self._rules is not None:
            self._rules.reload()

    def close(self) -> None:
        """Stop following."""
        if self._rules is not None:
            self._rules.close()
        if self._events is not None:
            self._events.close()

    def status(self) -> Mapping[str, Any]:
        """Which rules are in force, and how the last load went."""
        found: Mapping[str, Any] = _NO_RULES if self._rules is None else self._rules.status()
        return found

    @property
    def loads(self) -> tuple[int, int]:
        """Loads since the start, accepted and refused; without rules there was one, of none."""
        found: tuple[int, int] = (1, 0) if self._rules is None else self._rules.counts
        return found

    def metrics(self, now_us: int) -> Iterable[MetricFamily]:
        """What a rulebook's follower shows; nothing where none is followed."""
        if self._follower is not None:
            from sluicegate.service.rulebook_node import follower_metrics  # noqa: PLC0415

            yield from follower_metrics(self._follower, now_us)
