"""Refusals: a pair that was refused is refused here until the instant that the refusal named.

The service said that nothing would be admitted before then, so asking again would only load it. A
smaller weight may well be admitted, and is asked for. `believed_us_max` bounds how long a refusal
is believed, so that whoever resets a user or raises a limit is heard after that at the latest. What
a failure policy refused is not believed at all: nobody has counted it. Nor is a refusal for what
the service lacks: one ask in ten that is shed must not become all asks of a pair.
"""

from __future__ import annotations

from typing import Final, final

from headgate.client.answer import DENIAL, Answer
from headgate.client.pair import Pair
from headgate.contracts.decision import Decision
from headgate.contracts.reasons import GrpcCode
from headgate.stores.memory.turn import Turn

BELIEVED_US_MAX: Final = 10_000_000
PAIRS_MAX: Final = 100_000


@final
class Refusal:
    """A refusal, when it was asked for, and until when it is believed."""

    __slots__ = ("answer", "asked_us", "until_us", "weight")

    def __init__(self, answer: Answer, weight: int, asked_us: int, until_us: int) -> None:
        self.answer = answer
        self.weight = weight
        self.asked_us = asked_us
        self.until_us = until_us


@final
class Refusals:
    """The refused pairs of one client."""

    __slots__ = ("_by_pair", "_turn", "believed_us_max", "found", "pairs_max")

    def __init__(
        self, *, believed_us_max: int = BELIEVED_US_MAX, pairs_max: int = PAIRS_MAX
    ) -> None:
        self._by_pair: dict[Pair, Refusal] = {}
        self._turn = Turn()  # of those who write; a look-up needs none
        self.believed_us_max = believed_us_max
        self.pairs_max = pairs_max
        self.found = 0  # refusals told from here

    def find(self, pair: Pair, weight: int, now_us: int) -> Answer | None:
        """The refusal that still holds for as much; None if the service must be asked."""
        refusal = self._by_pair.get(pair)
        if refusal is None or weight < refusal.weight:
            return None
        if not refusal.asked_us <= now_us < refusal.until_us:
            self.forget(pair)
            return None
        self._turn.take()
        self.found += 1
        self._turn.give()
        was, passed_us = refusal.answer.decision, now_us - refusal.asked_us
        decision = Decision(
            False,
            was.remaining,
            max(was.retry_after_us - passed_us, 1),
            max(was.reset_after_us - passed_us, 1),
            was.reason,
            was.rule_id,
        )
        return Answer(decision, refusal.answer.limit, refusal.answer.status, DENIAL)

    def remember(self, pair: Pair, weight: int, answer: Answer, asked_us: int) -> None:
        """Believe a refusal; `asked_us` is from before the service was asked."""
        retry_us, reason = answer.retry_after_us, answer.reason
        if reason is None or retry_us <= 0 or answer.degraded or not self.pairs_max:
            return
        if reason.grpc_code is not GrpcCode.RESOURCE_EXHAUSTED:
            return
        until_us = asked_us + min(retry_us, self.believed_us_max)
        refusal = Refusal(answer, weight, asked_us, until_us)
        by_pair = self._by_pair
        self._turn.take()
        try:
            if len(by_pair) >= self.pairs_max and pair not in by_pair:
                del by_pair[next(iter(by_pair))]  # the oldest
            by_pair[pair] = refusal
        finally:
            self._turn.give()

    def forget(self, pair: Pair) -> None:
        """The pair may have room again."""
        self._turn.take()
        try:
            self._by_pair.pop(pair, None)
        finally:
            self._turn.give()

    def __len__(self) -> int:
        return len(self._by_pair)
