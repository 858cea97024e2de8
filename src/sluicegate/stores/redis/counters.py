"""Counters: how a limit becomes a script's arguments, and how its reply becomes a decision.

The scripts decide and write; they answer with the state as it was *before*, in whole numbers, and
with the server's instant. From those two the kernel's own step makes the decision here, with what
remains and when to come back, so a server and a process can never say different things. Should the
two ever disagree on whether a unit is admitted, nothing is believed. (The log alone is read where
it is, entry by entry, since all of it would be too much to send.)

Nothing here sends anything. What bounds it: Lua counts in doubles, which hold whole numbers up to
2^53. Instants are split into whole microseconds and ticks beyond them, so rates of any fineness are
exact; what could not be is refused when the limit is first used: a limit that takes more than
`SPAN_US_MAX` to be whole again, or counts more than `UNITS_MAX`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, RATE_LIMITED
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.contracts.store import Key
from sluicegate.kernels.fixed_window import step as fixed_step
from sluicegate.kernels.gcra import step as paced_step
from sluicegate.kernels.native import i64
from sluicegate.kernels.pace import Pace, in_us, product
from sluicegate.kernels.sliding_window import LOG_ENTRIES_MAX, cells_step
from sluicegate.kernels.sliding_window import reset_us as pair_reset_us
from sluicegate.kernels.sliding_window import step as pair_step
from sluicegate.kernels.verdict import NEVER
from sluicegate.stores.redis.settings import CELLS, WINDOWS
from sluicegate.wire.text import digest_of

SPAN_US_MAX: Final = 1 << 50  # over 35 years
UNITS_MAX: Final = 1 << 52
KEY_BYTES_MAX_DEFAULT: Final = 8_192

_SECOND_US: Final = 1_000_000
_START_DIGITS_MAX: Final = 12  # of a second since the epoch

Reply = list[Any]
_ZERO: Final = ord("0")
_NINE: Final = ord("9")
_X: Final = ord("x")
_COLON: Final = ord(":")
_COMMA: Final = ord(",")


class RedisCounter(ABC):
    """One limit, as the scripts know it. A subclass is one of their kinds."""

    __slots__ = (
        "_key_bytes_max",
        "_key_end",
        "_key_head",
        "_key_tail",
        "declared",
        "limit",
        "rule_id",
        "times_key",
        "width",
    )

    # What take.lua calls the kind, and the name of the script that takes many of it at once.
    kind = b""
    script = ""

    def __init__(self, prefix: str, rule_id: str, limit: Limit, key_bytes_max: int) -> None:
        _check(limit)
        self.rule_id = rule_id
        self.limit = limit
        # The kind and its four words, for scripts that are told several limits.
        self.declared: tuple[bytes, ...] = ()
        self.width = 1  # values a request in an answer
        # The window whose beginning a script adds to the key; empty where the key is whole.
        self.times_key = b""
        self._key_head = f"{prefix}:{{"
        self._key_end = f":{self.window()}"
        self._key_tail = f"}}:{rule_id}{self._key_end}"
        self._key_bytes_max = key_bytes_max

    def window(self) -> str:
        """Return how the key ends."""
        return span_text(self.limit.period_us)

    def key(self, key: Key) -> bytes:
        """Return the name of a key; all keys of one entity share a slot of a cluster."""
        if isinstance(key, str):
            return key_of(self._key_head, key, self._key_tail, self._key_bytes_max)
        tail = f"}}:{key.rule_id}{self._key_end}"
        return key_of(self._key_head, key.entity, tail, self._key_bytes_max)

    @abstractmethod
    def charge(self, cost: int) -> tuple[int, int]:
        """A cost, or a correction, as the scripts count it: a number, and the part of one."""

    def lane(self, cost: int) -> tuple[bytes, ...]:
        """What the script for many is told of a cost; nothing where a kind has no such script."""
        return ()

    @abstractmethod
    def decide(self, reply: Reply, at: int, now_us: int, cost: int) -> Decision:
        """Return the decision on a charge; what the script said of it stands at `reply[at]`."""

    def decided(self, allowed: bool, remaining: int, retry_us: int, reset_us: int) -> Decision:
        """The same as a value."""
        if allowed:
            return Decision(
                True, remaining, 0, reset_us, None, self.rule_id, limit=self.limit.burst
            )
        reason = COST_ABOVE_LIMIT if retry_us == NEVER else RATE_LIMITED
        return Decision(
            False, remaining, retry_us, reset_us, reason, self.rule_id, limit=self.limit.burst
        )


@final
class PacedCounter(RedisCounter):
    """GCRA and the token bucket without debt.

    Both keep one instant and make the same comparison; the tests hold each against its kernel.
    """

    __slots__ = ("_charge_max", "_interval", "_per_us", "_tolerance")

    kind = b"p"
    script = "take_paced"

    def __init__(self, prefix: str, rule_id: str, limit: Limit, key_bytes_max: int) -> None:
        super().__init__(prefix, rule_id, limit, key_bytes_max)
        pace = Pace(limit.count, limit.period_us)
        self._per_us = pace.ticks_per_us
        self._interval = pace.interval
        self._tolerance = limit.burst * pace.interval
        # Beyond what a debt of one burst could hold, more makes no difference.
        self._charge_max = 2 * self._tolerance + 1
        self.width = 1 if self._per_us == 1 else 2
        whole, part = divmod(self._tolerance, self._per_us)
        self.declared = (self.kind, *_digits(self._per_us, whole, part, limit.count))

    def charge(self, cost: int) -> tuple[int, int]:
        """In microseconds and ticks."""
        ticks = cost * self._interval
        if ticks > self._charge_max:
            ticks = self._charge_max
        whole, part = divmod(ticks, self._per_us)
        return (whole, part) if whole > -UNITS_MAX else (-UNITS_MAX, 0)

    def lane(self, cost: int) -> tuple[bytes, ...]:
        """Ticks a microsecond, the tolerance, the count, the charge."""
        return (*self.declared[1:], *_digits(*self.charge(cost)))

    def decide(self, reply: Reply, at: int, now_us: int, cost: int) -> Decision:
        """By the instant it was whole again before."""
        before: int = reply[at]
        if before < 0:
            before = -1 - before
        per_us = self._per_us
        if per_us == 1:
            _, allowed, remaining, retry, reset = paced_step(
                before, now_us, cost, self._interval, self._tolerance
            )
            if allowed:
                return Decision(
                    True, remaining, 0, reset, None, self.rule_id, limit=self.limit.burst
                )
            return self.decided(allowed, remaining, retry, reset)
        part: int = reply[at + 1]
        _, allowed, remaining, retry, reset = paced_step(
            product(before, per_us) + part,
            product(now_us, per_us),
            cost,
            self._interval,
            self._tolerance,
        )
        return self.decided(allowed, remaining, in_us(retry, per_us), in_us(reset, per_us))


class _WindowCounter(RedisCounter):
    """What counts units, not time."""

    __slots__ = ()

    def charge(self, cost: int) -> tuple[int, int]:
        """In units; beyond the limit, more makes no difference, nor does less than nothing."""
        bound = self.limit.count + 1
        return (max(min(cost, bound), -UNITS_MAX), 0)


@final
class _FixedCounter(_WindowCounter):
    """The fixed window; the server's clock says which it is."""

    __slots__ = ()

    kind = b"f"
    script = "take_fixed"

    def __init__(self, prefix: str, rule_id: str, limit: Limit, key_bytes_max: int) -> None:
        super().__init__(prefix, rule_id, limit, key_bytes_max)
        self.width = 2
        words = _digits(limit.count, limit.period_us, ttl_ms(limit.period_us))
        self.declared = (self.kind, *words, b"")

    def lane(self, cost: int) -> tuple[bytes, ...]:
        """Return the limit, the period, the time to live, the cost."""
        return (*self.declared[1:4], b"%d" % self.charge(cost)[0])

    def decide(self, reply: Reply, at: int, now_us: int, cost: int) -> Decision:
        """By what was used of the window before."""
        before: int = reply[at]
        window: int = reply[at + 1]
        if before < 0:
            before = -1 - before
        limit, period_us = self.limit.count, self.limit.period_us
        _, used, allowed, retry_us = fixed_step(window, before, now_us, cost, period_us, limit)
        reset_us = (window + 1) * period_us - now_us if used else 0
        return self.decided(allowed, limit - used, retry_us, reset_us)


@final
class CellsCounter(_WindowCounter):
    """The sliding window, in one cell or more."""

    __slots__ = ("_cell_us",)

    kind = b"c"
    script = "take_cells"

    def __init__(self, prefix: str, rule_id: str, limit: Limit, key_bytes_max: int) -> None:
        super().__init__(prefix, rule_id, limit, key_bytes_max)
        self._cell_us = limit.period_us // limit.cells
        self.width = 2
        words = _digits(limit.count, self._cell_us, limit.cells, ttl_ms(limit.period_us))
        self.declared = (self.kind, *words)

    def lane(self, cost: int) -> tuple[bytes, ...]:
        """Return the limit's words, the cost."""
        return (*self.declared[1:], b"%d" % self.charge(cost)[0])

    def decide(self, reply: Reply, at: int, now_us: int, cost: int) -> Decision:
        """By the counts of all cells before."""
        limit = self.limit
        _, allowed, remaining, retry_us, reset_us = cells_step(
            cells_state(reply[at + 1]), now_us, cost, self._cell_us, limit.cells, limit.count
        )
        return self.decided(allowed, remaining, retry_us, reset_us)


@final
class WindowsCounter(_WindowCounter):
    """The sliding window by two counters, each in a key of its own.

    Such a key ends in the second in which its window begins, which only the server knows: scripts
    are given the key without it.
    """

    __slots__ = ()

    kind = b"w"
    script = "take_windows"

    def __init__(self, prefix: str, rule_id: str, limit: Limit, key_bytes_max: int) -> None:
        if limit.period_us % _SECOND_US:
            raise BadValue(
                "limit.period_us",
                limit.period_us,
                "give a window of whole seconds, since with layout=windows a key ends in the "
                "second its window begins in; or leave the layout out of the store's URL",
            )
        super().__init__(prefix, rule_id, limit, key_bytes_max - _START_DIGITS_MAX)
        self.width = 3
        self.times_key = b"%d" % limit.period_us
        words = _digits(limit.count, limit.period_us, 2 * limit.period_us // _SECOND_US)
        self.declared = (self.kind, *words, b"")

    def window(self) -> str:
        """Nothing: the server adds the second."""
        return ""

    def lane(self, cost: int) -> tuple[bytes, ...]:
        """Return the limit, the window, the time to live, the cost."""
        return (*self.declared[1:4], b"%d" % self.charge(cost)[0])

    def decide(self, reply: Reply, at: int, now_us: int, cost: int) -> Decision:
        """By both counts before."""
        current: int = reply[at]
        if current < 0:
            current = -1 - current
        previous: int = reply[at + 1]
        window: int = reply[at + 2]
        limit, window_us = self.limit.count, self.limit.period_us
        window, current, previous, allowed, remaining, retry_us = pair_step(
            window, current, previous, now_us, cost, window_us, limit
        )
        reset_us = pair_reset_us(window, current, previous, now_us, window_us)
        return self.decided(allowed, remaining, retry_us, reset_us)


@final
class _LogCounter(_WindowCounter):
    """The exact log, decided where it is."""

    __slots__ = ()

    kind = b"l"

    def __init__(self, prefix: str, rule_id: str, limit: Limit, key_bytes_max: int) -> None:
        super().__init__(prefix, rule_id, limit, key_bytes_max)
        if limit.count > LOG_ENTRIES_MAX:
            raise BadValue(
                "limit.count",
                limit.count,
                f"an exact log holds at most {LOG_ENTRIES_MAX} entries a key; "
                "use sliding_window, whose memory does not grow with the limit",
            )
        self.width = 4
        self.declared = (self.kind, *_digits(limit.count, limit.period_us), b"", b"")

    def decide(self, reply: Reply, at: int, now_us: int, cost: int) -> Decision:
        """As the script has decided."""
        refused, remaining, retry_us, reset_us = reply[at : at + 4]
        return self.decided(refused == 0, remaining, retry_us, reset_us)


def key_of(head: str, entity: str, tail: str, key_bytes_max: int) -> bytes:
    """Return a key with the entity between what ends in { and what begins with }.

    An entity that is too long is its digest behind `%:`, which no other entity begins with.
    """
    if not entity:
        entity = "%"  # an empty tag would be none, and scatter what must be together
    elif "}" in entity or "%" in entity:
        entity = entity.replace("%", "%25").replace("}", "%7D")
    key = f"{head}{entity}{tail}".encode("utf-8", "surrogatepass")
    if len(key) <= key_bytes_max:
        return key
    digest = digest_of(entity.encode("utf-8", "surrogatepass"))
    key = f"{head}%:{digest}{tail}".encode("utf-8", "surrogatepass")
    if len(key) > key_bytes_max:
        raise BadValue(
            "key", entity, f"shorten the prefix or the rule's name: {key_bytes_max} bytes in all "
            "at most (key_bytes_max)"
        )  # fmt: skip
    return key


def counter_for(
    prefix: str,
    rule_id: str,
    limit: Limit,
    key_bytes_max: int = KEY_BYTES_MAX_DEFAULT,
    layout: str = CELLS,
) -> RedisCounter:
    """Return the counter of a limit's algorithm."""
    if limit.algorithm in BURSTING:
        return PacedCounter(prefix, rule_id, limit, key_bytes_max)
    if limit.algorithm is Algorithm.FIXED_WINDOW:
        return _FixedCounter(prefix, rule_id, limit, key_bytes_max)
    if limit.algorithm is Algorithm.SLIDING_WINDOW:
        if limit.cells == 1 and layout == WINDOWS:
            return WindowsCounter(prefix, rule_id, limit, key_bytes_max)
        return CellsCounter(prefix, rule_id, limit, key_bytes_max)
    return _LogCounter(prefix, rule_id, limit, key_bytes_max)


def cells_state(text: bytes) -> tuple[int, ...]:
    """Return the kernel's state of a sliding window, from the text that is kept."""
    # Digit by digit: split and int would take an eighth of a decision's time.
    numbers: list[int] = []
    read: i64 = 0
    skipping = False
    for byte in text:
        if skipping:
            skipping = byte != _COLON
        elif byte == _X:
            numbers.append(int(read))
            read = 0
            skipping = True
        elif byte == _COMMA:
            numbers.append(int(read))
            read = 0
        elif _ZERO <= byte <= _NINE:
            read = read * 10 + i64(byte - _ZERO)
        else:
            raise ValueError(f"the counts of a sliding window are not {text!r}")
    if numbers:
        numbers.append(int(read))
    return tuple(numbers)


def span_text(span_us: int) -> str:
    """Return a period as a key says it: 60s, 250ms, 7us."""
    if span_us % 1_000_000 == 0:
        return f"{span_us // 1_000_000}s"
    if span_us % 1_000 == 0:
        return f"{span_us // 1_000}ms"
    return f"{span_us}us"


def ttl_ms(period_us: int) -> int:
    """Return how long a window's counts are kept: two periods."""
    return -(-2 * period_us // 1_000)


def _check(limit: Limit) -> None:
    paced = limit.algorithm in BURSTING
    span_us = limit.burst * limit.period_us // limit.count if paced else limit.period_us
    if span_us > SPAN_US_MAX:
        raise BadValue(
            "limit", limit, "Redis counts to 2^50 us (35 years): shorten the period or the burst"
        )
    if limit.count > UNITS_MAX:
        raise BadValue("limit.count", limit.count, "Redis counts to 2^52: give that at most")


def _digits(*numbers: int) -> tuple[bytes, ...]:
    return tuple(b"%d" % number for number in numbers)
