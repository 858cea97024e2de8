"""Range shield: what many read of one partition as a whole is read once, and kept for a moment.

Two questions have such an answer: the rows of a range, and those of a multi-get of one partition,
which are of one instant and so are kept together or not at all. Equal questions have equal keys:
partition, begin, end, direction and limits, or the sort keys in their order. A token is where its
range goes on, so a page behind a token is a range like others.

    question = ranges.of_range(table, partition, span)
    state, answer = ranges.look(question, now_us, shard)      the states of `Shield`
    COLD                  read it as if there were no shield
    else                  `fetch_ahead`, `read`, whose fetch brings `answer(question, rows, ...)`

Writes. A partition has an epoch, which `begin_write` and `end_write` advance. An answer belongs to
the epoch in which it was asked for: in another one it has expired, no fetch of it is joined, and
what that brings is not kept. While a partition is being written, its ranges are read past the
shield. So the promises of `shield.py` to who writes hold here too; what other nodes write is seen
when the ttl is over. A range that brought nothing is kept for as long as a key that is not there,
and one that ended early, because its leader had nothing more to spend, is not kept.

Partitions share `EPOCHS` epochs: two in one cost a needless fetch, never a stale answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Final, TypeAlias, final

from sluicegate.apps.kv.shield.settings import ShieldSettings
from sluicegate.apps.kv.shield.shield import Shield
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.engine import SORT_BYTES_MAX, KeyRange
from sluicegate.contracts.key_values import Row
from sluicegate.contracts.request import Request
from sluicegate.policies.cache.coalesce import Flight
from sluicegate.policies.cache.hot_key import OfferedLoads

EPOCHS: Final = 1 << 16  # at 10,000 writes a second, one epoch passes in 6 s by others
_EXPIRED: Final = 1  # an instant that is over
_DIGEST_BYTES: Final = 16


@final
class RangeAnswer:
    """The rows of a range, or of places, None where there is none; and the token behind them."""

    __slots__ = ("_epoch", "_epochs", "_expires_us", "_slot", "rows", "size_bytes", "token")

    def __init__(
        self,
        rows: Sequence[Row | None],
        token: bytes,
        expires_us: int,
        epochs: list[int],
        slot: int,
        epoch: int,
    ) -> None:
        self.rows = rows
        self.token = token
        self.size_bytes = sum([row.size_bytes for row in rows if row is not None])
        self._expires_us = expires_us
        self._epochs = epochs
        self._slot = slot
        self._epoch = epoch

    @property
    def expires_us(self) -> int:
        """When its first row expires; at once if its partition was written."""
        return self._expires_us if self._epochs[self._slot] == self._epoch else _EXPIRED

    def unexpired(self, now_us: int) -> RangeAnswer | None:
        """The same without the rows whose time is over."""
        rows = [None if row is None else row.unexpired(now_us) for row in self.rows]
        return RangeAnswer(
            rows, self.token, self._expires_us, self._epochs, self._slot, self._epoch
        )


RangeFetch: TypeAlias = Callable[[Flight[RangeAnswer | None]], Awaitable[RangeAnswer | None]]


@final
class RangeQuestion:
    """What is asked, and in which epoch of its partition."""

    __slots__ = ("epoch", "key", "slot")

    def __init__(self, key: str, slot: int, epoch: int) -> None:
        self.key = key
        self.slot = slot
        self.epoch = epoch

    @property
    def flight_key(self) -> str:
        """Under which only those of one epoch fetch together."""
        return f"{self.key}#{self.epoch}"


@final
class RangeShield:
    """The hot ranges and multi-gets of one dispatcher."""

    __slots__ = ("_epochs", "_writers", "shield")

    def __init__(
        self,
        settings: ShieldSettings,
        chance: Chance,
        raised: Callable[[Request, int], object] | None = None,
        refused: Callable[[Request, Decision, int], object] | None = None,
        loads: OfferedLoads | None = None,
    ) -> None:
        """`raised`, `refused` and `loads` as in `Shield`."""
        self.shield: Shield[RangeAnswer] = Shield(settings, chance, raised, refused, loads)
        self._epochs = [0] * EPOCHS
        self._writers = [0] * EPOCHS

    def of_range(self, table: str, partition: bytes, span: KeyRange) -> RangeQuestion:
        """The rows of a range."""
        begin, end = span.begin, span.end
        head = b"range %d,%d,%d,%d " % (span.reverse, span.rows_max, span.bytes_max, len(begin))
        return self._question(table, partition, head + begin + (b"" if end is None else b"-" + end))

    def of_places(self, table: str, partition: bytes, sorts: Sequence[bytes]) -> RangeQuestion:
        """The rows at these places."""
        lengths = b",".join([b"%d" % len(sort) for sort in sorts])
        return self._question(table, partition, b"places " + lengths + b" " + b"".join(sorts))

    def look(
        self, question: RangeQuestion, now_us: int, shard: str = ""
    ) -> tuple[int, RangeAnswer | None]:
        """Count it, and return what to do."""
        written = self._writers[question.slot] > 0
        return self.shield.look(question.key, now_us, shard, strong=written)

    def answer(
        self,
        question: RangeQuestion,
        rows: Sequence[Row | None],
        token: bytes,
        now_us: int,
        *,
        whole: bool = True,
    ) -> RangeAnswer:
        """What a fetch brings that began after `look`; one that is not `whole` is not kept."""
        found = [row for row in rows if row is not None]
        if not whole:
            expires_us = _EXPIRED
        elif not found:
            expires_us = now_us + self.shield.settings.negative_ttl_us
        else:
            expires_us = min([row.expires_us for row in found if row.expires_us], default=0)
        return RangeAnswer(rows, token, expires_us, self._epochs, question.slot, question.epoch)

    async def read(
        self,
        question: RangeQuestion,
        stale: RangeAnswer | None,
        request: Request,
        clock: Clock,
        fetch: RangeFetch,
    ) -> RangeAnswer:
        """The answer of a question that is MISS or STALE, as `Shield.read`."""
        answer = await self.shield.read(
            question.key, stale, request, clock, fetch, question.flight_key
        )
        if answer is None:
            raise TypeError("a fetch of a range brings an answer, also if it has no rows")
        return answer

    def fetch_ahead(
        self, question: RangeQuestion, request: Request, clock: Clock, fetch: RangeFetch
    ) -> bool:
        """Fetch one that is REFRESH, as `Shield.fetch_ahead`."""
        return self.shield.fetch_ahead(question.key, request, clock, fetch, question.flight_key)

    def begin_write(self, table: str, partitions: Iterable[bytes]) -> list[int]:
        """These are about to be written; what is returned is for `end_write`."""
        slots = [*{_slot(table, partition) for partition in partitions}]
        for slot in slots:
            self._epochs[slot] += 1
            self._writers[slot] += 1
        return slots

    def end_write(self, slots: Iterable[int]) -> None:
        """The engine has answered or failed, and nobody has been told yet."""
        for slot in slots:
            self._epochs[slot] += 1
            self._writers[slot] -= 1

    def _question(self, table: str, partition: bytes, spelt: bytes) -> RangeQuestion:
        """A key is like a place's; where that is too long, its end is a digest."""
        if len(spelt) > SORT_BYTES_MAX:
            digest = blake2b(spelt, digest_size=_DIGEST_BYTES).hexdigest().encode()
            spelt = spelt.partition(b" ")[0] + b" #" + digest
        slot = _slot(table, partition)
        key = self.shield.key(table, partition, spelt)
        return RangeQuestion(key, slot, self._epochs[slot])


def _slot(table: str, partition: bytes) -> int:
    return hash((table, partition)) % EPOCHS
