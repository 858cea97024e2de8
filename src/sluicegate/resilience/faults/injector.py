"""Fault injector: judges which requests meet which fault, and counts them.

    faults = FaultInjector(fault_settings(table))
    app = inject(app, faults)
    faults.switch(on=True)

The rules are asked in their order, and the first that meets a request decides. Draws come from the
seed, a stream a rule: the same requests in the same order meet the same faults, and a new rule
leaves the draws of the others as they were. Nothing is drawn for requests that a rule does not
match, nor while the faults are off.

`switch` and `replace` act while it serves, from any thread. Cost while off: a comparison. Bounds:
`RULES_MAX` rules, a count each.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import translate
from hashlib import blake2b
from math import log
from typing import Final, NamedTuple, NoReturn, final

from sluicegate.contracts.chance import Chance
from sluicegate.resilience.faults.settings import (
    EVEN,
    EXPONENTIAL,
    FaultRule,
    FaultSettings,
)
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, counters, gauge

FIELD: Final = "X-Sluicegate-Fault"
_log: Final = logging.getLogger("sluicegate.faults")
_DRAW_BYTES: Final = 6

Headers = Callable[[str], str | None]  # the value of a header by its name in small letters


@final
class InjectedError(Exception):
    """What a fault with `error` raises, or one that breaks a connection."""


class Injection(NamedTuple):
    """What happens to one request: a wait, and then `rule` says how it goes on."""

    name: str
    rule: FaultRule
    delay_us: int

    @property
    def ends(self) -> bool:
        """Whether the work is not done at all."""
        rule = self.rule
        return rule.abort or rule.status > 0 or bool(rule.error)

    def fail(self) -> NoReturn:
        """Raise what it raises."""
        raise InjectedError(self.rule.error or f"the fault {self.name} breaks the connection")


@final
class FaultDraws:
    """Draws of one name and seed: the same ones in each process, on each machine."""

    __slots__ = ("_key", "_numbers")

    def __init__(self, seed: int, name: str) -> None:
        self._key = f"{seed}/{name}/"
        self._numbers: Iterator[int] = itertools.count()

    def draw(self) -> float:
        """Return the next one, as a `contracts.chance.Chance`."""
        text = f"{self._key}{next(self._numbers)}".encode()
        drawn = int.from_bytes(blake2b(text, digest_size=_DRAW_BYTES).digest(), "big")
        return drawn / (1 << (8 * _DRAW_BYTES))


@final
class _ActiveRule:
    __slots__ = ("_header", "_match", "_value", "chance", "met", "name", "rule")

    def __init__(self, name: str, rule: FaultRule, chance: Chance) -> None:
        self.name = name
        self.rule = rule
        self.chance = chance
        self.met = 0
        self._match = re.compile(translate(rule.route)).match
        header, _, value = rule.header.partition("=")
        self._header = header.strip().lower()
        self._value = value.strip()  # as a header's own is read

    def matches(self, route: str, headers: Headers) -> bool:
        if self._match(route) is None:
            return False
        if not self._header:
            return True
        found = headers(self._header)
        return found is not None and self._value in ("", found)


@final
class FaultInjector:
    """The faults of a service or a client."""

    def __init__(
        self, settings: FaultSettings | None = None, chance: Callable[[str], Chance] | None = None
    ) -> None:
        self.settings = FaultSettings() if settings is None else settings
        self._chance = chance
        self._rules: Sequence[_ActiveRule] = ()
        self._before: dict[str, int] = {}  # what rules that were replaced had counted
        self.on = False
        self.replace(self.settings)

    def replace(self, settings: FaultSettings) -> None:
        """Take other faults, on or off as these settings say; what was counted stays counted."""
        for old in self._rules:
            self._before[old.name] = self._before.get(old.name, 0) + old.met
        # Of names that went only as many are remembered as there may be rules.
        self._before = {
            name: met for name, met in self._before.items() if met and name in settings.rules
        }
        self.settings = settings
        self._rules = tuple(
            _ActiveRule(name, rule, self._chance_of(name)) for name, rule in settings.rules.items()
        )
        self.switch(on=settings.on)

    def switch(self, *, on: bool) -> None:
        """Put all faults on or off; a warning names them."""
        was, self.on = self.on, on
        if on and self._rules:
            named = "; ".join(f"{one.name}: {one.rule.sentence()}" for one in self._rules)
            _log.warning("fault injection is ON: %s", named)
        elif was:
            _log.warning("fault injection is off")

    def pick(self, route: str, headers: Headers) -> Injection | None:
        """Return what happens to this request, or None."""
        if not self.on or route in self.settings.bypass:
            return None
        for one in self._rules:
            if one.matches(route, headers) and one.chance.draw() < one.rule.share:
                one.met += 1
                return Injection(one.name, one.rule, _delay_us(one.rule, one.chance))
        return None

    def families(self) -> list[MetricFamily]:
        """Return its metrics, for `telemetry.prometheus.page`."""
        met = [
            MetricSample("_total", (("fault", one.name),), one.met + self._before.get(one.name, 0))
            for one in self._rules
        ]
        return [
            gauge("sluicegate_resilience_faults_on", "1 while faults are injected.", int(self.on)),
            counters("sluicegate_resilience_faults", "Requests that met a fault.", met),
        ]

    def _chance_of(self, name: str) -> Chance:
        made = self._chance
        return FaultDraws(self.settings.seed, name) if made is None else made(name)


def _delay_us(rule: FaultRule, chance: Chance) -> int:
    delay_us: float = rule.delay_us
    if rule.spread == EVEN:
        delay_us *= 2 * chance.draw()
    elif rule.spread == EXPONENTIAL:
        delay_us *= -log(1.0 - chance.draw())
    return min(int(delay_us), rule.delay_us_max)
