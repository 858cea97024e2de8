"""Denials: a key that was refused is refused here, until the instant that the refusal named.

The store said that nothing would be admitted before then, so asking it again would only load it.
A smaller cost may well be admitted, and is asked for. `believed_us_max` bounds how long a refusal
is believed: whoever resets a key or raises a limit elsewhere is heard after that at the latest.
"""

from __future__ import annotations

from typing import Final, final

from headgate.contracts.decision import Decision
from headgate.stores.memory.turn import Turn

BELIEVED_US_MAX: Final = 10_000_000
KEYS_MAX: Final = 100_000


@final
class Denial:
    """A refusal, when it was asked for, and until when it is believed."""

    __slots__ = ("asked_us", "cost", "decision", "until_us")

    def __init__(self, asked_us: int, until_us: int, cost: int, decision: Decision) -> None:
        self.asked_us = asked_us
        self.until_us = until_us
        self.cost = cost
        self.decision = decision


@final
class Denials:
    """The refused keys of one rule."""

    __slots__ = ("_by_key", "_turn", "believed_us_max", "keys_max")

    def __init__(self, *, believed_us_max: int = BELIEVED_US_MAX, keys_max: int = KEYS_MAX) -> None:
        self._by_key: dict[str, Denial] = {}
        self._turn = Turn()  # of those who write; a look-up needs none
        self.believed_us_max = believed_us_max
        self.keys_max = keys_max

    def refusal(self, key: str, cost: int, now_us: int) -> Decision | None:
        """The refusal that still holds for as much; None if the store must be asked."""
        denial = self._by_key.get(key)
        if denial is None or cost < denial.cost:
            return None
        if now_us >= denial.until_us:
            self.forget(key)
            return None
        was, passed_us = denial.decision, max(now_us - denial.asked_us, 0)
        return Decision(
            False,
            was.remaining,
            max(was.retry_after_us - passed_us, 1),
            max(was.reset_after_us - passed_us, 1),
            was.reason,
            was.rule_id,
        )

    def remember(self, key: str, cost: int, decision: Decision, asked_us: int) -> None:
        """Believe a refusal; `asked_us` is from before the store was asked."""
        retry_us = decision.retry_after_us
        if retry_us <= 0:
            return  # a cost above the limit: the cost says so each time
        until_us = asked_us + min(retry_us, self.believed_us_max)
        denial = Denial(asked_us, until_us, cost, decision)
        denials = self._by_key
        self._turn.take()
        try:
            if len(denials) >= self.keys_max and key not in denials:
                del denials[next(iter(denials))]  # the oldest
            denials[key] = denial
        finally:
            self._turn.give()

    def forget(self, key: str) -> None:
        """The key may have room again."""
        self._turn.take()
        try:
            self._by_key.pop(key, None)
        finally:
            self._turn.give()

    def __len__(self) -> int:
        return len(self._by_key)
