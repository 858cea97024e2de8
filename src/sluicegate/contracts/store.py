"""Store: where the state of limits lives, behind operations that are values.

A charge says what is to be taken from one limit for one key, and is the same whether it runs on a
dict under a lock or as a script in a server. A store returns what the kernel of the limit's
algorithm returns; every store's tests compare the two.

The methods are coroutines because a server answers later; a store in this process never suspends,
so synchronous code may step such a coroutine to its end. A store that cannot answer raises
`Unavailable`; it never guesses. Instants are the store's own; no caller's clock is ever read.

A service may have a million rules that say few different limits. Those share one limit whose id
begins with `SHARED`, and each key says its rule beside its entity (`SharedKey`). A store that names
keys for people to read puts the rule's name in the place of the limit's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.rule import Limit
from sluicegate.kernels.native import mypyc_attr

SHARED: Final = "~"


@final
@mypyc_attr(acyclic=True)
class SharedKey:
    """The key of an entity under a rule that shares its limit with others.

    As text, for who keeps no more than that, no two are alike: no rule's name holds the mark.
    """

    __slots__ = ("entity", "rule_id")

    def __init__(self, entity: str, rule_id: str) -> None:
        self.entity = entity
        self.rule_id = rule_id

    def __str__(self) -> str:
        return f"{self.entity}\x1f{self.rule_id}"

    def __len__(self) -> int:
        return len(self.entity) + len(self.rule_id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SharedKey):
            return NotImplemented
        return self.entity == other.entity and self.rule_id == other.rule_id

    def __hash__(self) -> int:
        return hash((self.entity, self.rule_id))


Key: TypeAlias = str | SharedKey


class Charge(NamedTuple):
    """`cost` units of the limit that is known as `rule_id`, for `key`."""

    rule_id: str
    limit: Limit
    key: Key
    cost: int = 1


class Ruling(NamedTuple):
    """The instant, by the store's own clock, and one decision for each charge."""

    at_us: int
    decisions: Sequence[Decision]

    @property
    def allowed(self) -> bool:
        """Whether every charge is admitted; if not, none was taken."""
        return all(decision.allowed for decision in self.decisions)


class PartialTake(NamedTuple):
    """What `take_some` has taken, and the decision about it."""

    at_us: int
    units: int
    decision: Decision


@mypyc_attr(native_class=False)  # for whoever subclasses it
class Store(Protocol):
    """Durable or not, local or remote."""

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Take every charge or none; without `keep`, only say what would be decided.

        A limit named twice for one key is one charge of both. With `count_refused`, what is
        refused is charged all the same, in every limit, as far as each can hold it.
        """
        ...

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        """Take the first of `ladder` (costs, falling) that fits; 0 units if none does.

        The decision is that of what was taken, or of the last rung. The charge's own cost says
        nothing here.
        """
        ...

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Correct what was taken at `taken_us` by each cost: more, or back if it is negative.

        None is now: for what was taken a moment ago, or is charged for the first time.
        """
        ...

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget what each charge's key has taken of its limit."""
        ...

    async def close(self) -> None:
        """Give back what is held; a closed store raises `Unavailable`."""
        ...
