"""Commands: operations on a service's store as bytes, and its replies as values.

A charge is nine arguments. Of those, what a limit says the same each time is written once and
kept, for `LIMITS_MAX` limits. A reply that is not what was asked for is `Unavailable`: whatever
answered is no service of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.contracts.reasons import REASONS
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Charge, PartialTake, Ruling
from sluicegate.wire.resp import ErrorReply, Part, arguments
from sluicegate.wire.text import word_of

LIMITS_MAX: Final = 10_000
PREFIX_DEFAULT: Final = "rate_limit"
_CHARGE_WORDS: Final = 9
_DECISION_WORDS: Final = 5
_BAD_VALUE: Final = " cannot be used; "  # as `BadValue` says it on the other side


@final
class _LimitWords:
    """A limit, and the six words that say it."""

    __slots__ = ("limit", "words")

    def __init__(self, limit: Limit, words: bytes) -> None:
        self.limit = limit
        self.words = words


@final
class StoreCommands:
    """Writes and reads for one prefix, which keeps apart programs that name their rules alike."""

    __slots__ = ("_limit_words", "limits_max", "prefix")

    def __init__(self, prefix: str = PREFIX_DEFAULT, *, limits_max: int = LIMITS_MAX) -> None:
        self.prefix = prefix
        self.limits_max = limits_max
        self._limit_words: dict[str, _LimitWords] = {}

    def take(self, charges: Sequence[Charge], *, keep: bool, count_refused: bool) -> bytes:
        """SG.TAKE."""
        return self._command(
            ("SG.TAKE", int(keep), int(count_refused), len(charges)), charges, least=0
        )

    def take_some(self, charge: Charge, ladder: Sequence[int]) -> bytes:
        """SG.TAKESOME."""
        if not ladder:
            raise BadValue("ladder", ladder, "give at least one cost")
        for cost in ladder:
            if cost < 0:
                raise _negative(cost)
        rungs = arguments((len(ladder), *ladder))
        # The charge's own cost says nothing here.
        words = self._charge(charge._replace(cost=0))
        head = arguments(("SG.TAKESOME",))
        return b"*%d\r\n%b%b%b" % (2 + _CHARGE_WORDS + len(ladder), head, words, rungs)

    def settle(self, charges: Sequence[Charge], taken_us: int | None) -> bytes:
        """SG.SETTLE."""
        then = -1 if taken_us is None else taken_us
        return self._command(("SG.SETTLE", then, len(charges)), charges)

    def forget(self, charges: Sequence[Charge]) -> bytes:
        """SG.FORGET."""
        return self._command(("SG.FORGET", len(charges)), charges)

    def _command(
        self, first: Sequence[Part], charges: Sequence[Charge], *, least: int | None = None
    ) -> bytes:
        out = [b"", arguments(first)]
        for charge in charges:
            if least is not None and charge.cost < least:
                raise _negative(charge.cost)
            out.append(self._charge(charge))
        out[0] = b"*%d\r\n" % (len(first) + _CHARGE_WORDS * len(charges))
        return b"".join(out)

    def _charge(self, charge: Charge) -> bytes:
        rule_id, limit, key, cost = charge
        words = self._limit_words.get(rule_id)
        if words is None or (words.limit is not limit and words.limit != limit):
            words = self._encode_limit(rule_id, limit)
        if isinstance(key, str):
            return words.words + arguments((word_of(key), "", cost))
        return words.words + arguments((word_of(key.entity), self.name(key.rule_id), cost))

    def _encode_limit(self, rule_id: str, limit: Limit) -> _LimitWords:
        encoded = arguments(
            (
                self.name(rule_id),
                limit.algorithm.value,
                limit.count,
                limit.period_us,
                limit.burst,
                limit.cells,
            )
        )
        if rule_id not in self._limit_words and len(self._limit_words) >= self.limits_max:
            self._limit_words.pop(next(iter(self._limit_words)))  # it is only a way to say things
        words = self._limit_words[rule_id] = _LimitWords(limit, encoded)
        return words

    def name(self, rule_id: str) -> str:
        """Return the id of a limit or a rule as the service knows it."""
        return rule_id if self.prefix == PREFIX_DEFAULT else f"{self.prefix}:{rule_id}"


def ruling_of(reply: Any, charges: Sequence[Charge]) -> Ruling:
    """Return what SG.TAKE answered to these charges."""
    if not isinstance(reply, list) or len(reply) != 1 + _DECISION_WORDS * len(charges):
        raise unknown_reply(reply)
    return Ruling(
        reply[0],
        [
            decision_of(reply, 1 + _DECISION_WORDS * place, charge)
            for place, charge in enumerate(charges)
        ],
    )


def grant_of(reply: Any, charge: Charge) -> PartialTake:
    """Return what SG.TAKESOME answered."""
    if not isinstance(reply, list) or len(reply) != 2 + _DECISION_WORDS:
        raise unknown_reply(reply)
    return PartialTake(reply[0], reply[1], decision_of(reply, 2, charge))


def decision_of(reply: list[Any], at: int, charge: Charge) -> Decision:
    """Return the five words from `at` on."""
    allowed, remaining, retry_us, reset_us, name = reply[at : at + _DECISION_WORDS]
    try:
        reason = REASONS[name.decode()] if name else None
    except (KeyError, AttributeError, UnicodeDecodeError):
        raise unknown_reply(reply) from None
    if not allowed and reason is None:
        raise unknown_reply(reply)
    return Decision(
        bool(allowed),
        remaining,
        retry_us,
        reset_us,
        reason,
        charge.rule_id,
        limit=charge.limit.burst,
    )


def unknown_reply(reply: Any) -> Unavailable:
    """Return what is told of a reply that answers something else."""
    return Unavailable("the service", f"its answer is not understood: {reply!r:.80}")


def error_of(what: str, error: ErrorReply) -> SluicegateError:
    """Return an error reply as what it was there: a value that cannot be used, or no answer."""
    words, cut, remedy = error.text.removeprefix("ERR ").partition(_BAD_VALUE)
    field, colon, value = words.partition(": ")
    if cut and colon:
        return BadValue(field, value, remedy)
    return Unavailable(what, str(error))


def _negative(cost: int) -> BadValue:
    return BadValue("cost", cost, "give 0 or more; what is given back goes through settle")
