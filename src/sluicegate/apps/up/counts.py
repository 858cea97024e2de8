"""UpCounts: what was decided, counted so that it can be shown. The instant is an argument.

It decides nothing and shows nothing. What it keeps is bounded: a minute of seconds for each rule, a
count for each reason, a sketch of ten seconds of latencies, and the keys refused most often in a
fixed number of counters. `snapshot` is the one way out, and the view, the plain lines and /v1/state
all read that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.kernels.space_saving import SpaceSaving
from sluicegate.kernels.windowed_quantile import WindowedQuantile

SECOND_US: Final = 1_000_000
MINUTE_S: Final = 60
RATE_S: Final = 5  # a rate is the mean over so many whole seconds: it can be read while it moves
LATENCY_S: Final = 10
REFUSED_COUNTERS: Final = 500  # 20 for each key that is ever shown
REFUSED_SHOWN: Final = 25
REFUSED_HALF_LIFE_S: Final = 30
KEY_CHARS_MAX: Final = 512


class Quantiles(NamedTuple):
    """Of the last ten seconds, in microseconds; None where nothing was measured."""

    p50_us: float | None
    p99_us: float | None


class RefusedKey(NamedTuple):
    """A key that is refused often; `share` is of all refusals of late, a lower bound."""

    rule: str
    key: str
    share: float


class RuleCount(NamedTuple):
    """What one rule has done: since the start, of late, and second by second."""

    name: str
    admitted: int
    refused: int
    per_s: float
    reasons: Mapping[str, int]
    minute_admitted: tuple[int, ...]  # whole seconds, oldest first
    minute_refused: tuple[int, ...]


class Snapshot(NamedTuple):
    """Everything that is counted, at one instant."""

    at_us: int
    uptime_us: int
    rules: tuple[RuleCount, ...]
    refused_keys: tuple[RefusedKey, ...]
    decision: Quantiles
    answer: Quantiles
    bad_requests: int
    faults: int

    @property
    def admitted(self) -> int:
        """Over all rules, since the start."""
        return sum(rule.admitted for rule in self.rules)

    @property
    def refused(self) -> int:
        """Over all rules, since the start."""
        return sum(rule.refused for rule in self.rules)

    @property
    def per_s(self) -> float:
        """Decisions a second of late, over all rules."""
        return sum(rule.per_s for rule in self.rules)

    @property
    def reasons(self) -> dict[str, int]:
        """Refusals by reason over all rules, the most frequent first."""
        counts: dict[str, int] = {}
        for rule in self.rules:
            for name, count in rule.reasons.items():
                counts[name] = counts.get(name, 0) + count
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


@final
class Minute:
    """Counts of the second in progress and of the sixty before it."""

    __slots__ = ("_counts", "_second")

    def __init__(self) -> None:
        self._counts = [0] * (MINUTE_S + 1)
        self._second = 0

    def add(self, second: int) -> None:
        """Count one in `second`."""
        self._advance(second)
        self._counts[second % len(self._counts)] += 1

    def whole(self, second: int) -> tuple[int, ...]:
        """The sixty seconds before `second`, oldest first."""
        self._advance(second)
        size = len(self._counts)
        return tuple(self._counts[past % size] for past in range(second - MINUTE_S, second))

    def _advance(self, second: int) -> None:
        if second > self._second:
            size = len(self._counts)
            for fresh in range(max(self._second + 1, second - size + 1), second + 1):
                self._counts[fresh % size] = 0
            self._second = second


@final
class _Rule:
    __slots__ = ("admitted", "minute_admitted", "minute_refused", "reasons", "refused")

    def __init__(self) -> None:
        self.admitted = 0
        self.refused = 0
        self.reasons: dict[str, int] = {}
        self.minute_admitted = Minute()
        self.minute_refused = Minute()


@final
class UpCounts:
    """Counts for the rules it is made with."""

    def __init__(self, rules: Iterable[str], started_us: int) -> None:
        self.started_us = started_us
        self.bad_requests = 0
        self.faults = 0
        self._rules = {name: _Rule() for name in rules}
        self._decision = WindowedQuantile(LATENCY_S, SECOND_US)
        self._answer = WindowedQuantile(LATENCY_S, SECOND_US)
        self._refused = SpaceSaving(REFUSED_COUNTERS, key_length_max=KEY_CHARS_MAX + 64)
        self._halve_us = started_us + REFUSED_HALF_LIFE_S * SECOND_US

    def decided(self, rule: str, key: str, decision: Decision, took_us: int, now_us: int) -> None:
        """Count one decision."""
        counts = self._rules[rule]
        second = now_us // SECOND_US
        if decision.allowed:
            counts.admitted += 1
            counts.minute_admitted.add(second)
        else:
            counts.refused += 1
            counts.minute_refused.add(second)
            reason = "" if decision.reason is None else decision.reason.name
            counts.reasons[reason] = counts.reasons.get(reason, 0) + 1
            self._age(now_us)
            # A rule's name holds no space, so the first one parts the two again.
            self._refused.update(f"{rule} {key}")
        self._decision.add(took_us, now_us)

    def answered(self, took_us: int, now_us: int) -> None:
        """Count the time of a whole answer, from the request read to the reply made."""
        self._answer.add(took_us, now_us)

    def snapshot(self, now_us: int) -> Snapshot:
        """Everything, as of now."""
        self._age(now_us)
        return Snapshot(
            at_us=now_us,
            uptime_us=now_us - self.started_us,
            rules=tuple(self._count(name, rule, now_us) for name, rule in self._rules.items()),
            refused_keys=tuple(self._refused_keys()),
            decision=_quantiles(self._decision, now_us),
            answer=_quantiles(self._answer, now_us),
            bad_requests=self.bad_requests,
            faults=self.faults,
        )

    def _count(self, name: str, rule: _Rule, now_us: int) -> RuleCount:
        second = now_us // SECOND_US
        admitted = rule.minute_admitted.whole(second)
        refused = rule.minute_refused.whole(second)
        # The second in which we started was not whole.
        seconds = min(max(second - self.started_us // SECOND_US - 1, 1), RATE_S)
        recent = sum(admitted[-seconds:]) + sum(refused[-seconds:])
        return RuleCount(
            name=name,
            admitted=rule.admitted,
            refused=rule.refused,
            per_s=recent / seconds,
            reasons=dict(rule.reasons),
            minute_admitted=admitted,
            minute_refused=refused,
        )

    def _refused_keys(self) -> Iterable[RefusedKey]:
        for heavy in self._refused.top(REFUSED_SHOWN):
            if heavy.guaranteed > 0:
                rule, _, key = str(heavy.key).partition(" ")
                yield RefusedKey(rule, key, heavy.guaranteed / self._refused.total)

    def _age(self, now_us: int) -> None:
        if now_us >= self._halve_us:
            self._refused.halve()
            self._halve_us = now_us + REFUSED_HALF_LIFE_S * SECOND_US


def _quantiles(window: WindowedQuantile, now_us: int) -> Quantiles:
    return Quantiles(window.quantile(0.5, now_us), window.quantile(0.99, now_us))
