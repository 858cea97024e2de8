"""Store: where the state of limits lives, behind operations that are values.

An operation says what is to be done to one key and is the same whether it runs on a dict under a
lock or as a script in a server. `Take` is the one that decides. What a store answers is what the
kernel of the limit's algorithm answers; every store's tests hold it against that.

The methods are coroutines because a server answers later; a store in this process never suspends,
so synchronous code may step such a coroutine to its end. A store that cannot answer raises
`Unavailable`; it never guesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headgate.contracts.decision import Decision
from headgate.contracts.rule import Limit


class Take(NamedTuple):
    """Take `cost` from the limit of `rule_id` for `key`, if it is there to be taken."""

    rule_id: str
    limit: Limit
    key: str
    cost: int = 1


class Store(Protocol):
    """Durable or not, near or far: takes in order, and decisions in the same order."""

    async def take(self, takes: Sequence[Take]) -> Sequence[Decision]:
        """Decide each take on its own, in the order given, by the store's own clock."""
        ...

    async def close(self) -> None:
        """Give back what is held; a closed store raises `Unavailable`."""
        ...
