"""Stores: the rows by which limiters elsewhere keep their counts here, a store's operations each.

A charge is eight words: rule_id algorithm count period_us burst cells key cost. What is answered
is in microseconds and whole numbers, so that the other side makes the same decision of it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from sluicegate.contracts.checks import MaybeAwaitable, RateLimits
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.contracts.store import Charge, Store
from sluicegate.doors.resp.checks import WEIGHT_MAX, counted
from sluicegate.doors.resp.errors import refusal
from sluicegate.doors.resp.session import Session, Shared, identity_of
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.wire.resp import OK, encoded, text_of, whole_number

CHARGE_WORDS: Final = 8
_ALGORITHMS: Final = {algorithm.value: algorithm for algorithm in Algorithm}


def kept_limits(settings: RespSettings) -> dict[tuple[bytes, ...], Limit]:
    """Limits that other limiters count here, by how they were written."""
    return {}


def take(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.TAKE keep count_refused n charge*n."""
    store = _store(session)
    keep, count_refused = _flag("keep", parts[1]), _flag("count_refused", parts[2])
    return _take(store, _charges(session, parts, 3, 0), keep, count_refused)


async def _take(store: Store, charges: list[Charge], keep: bool, count_refused: bool) -> bytes:
    try:
        ruling = await store.take(charges, keep=keep, count_refused=count_refused)
    except Exception as error:
        return refusal(error)
    told: list[object] = [ruling.at_us]
    for decision in ruling.decisions:
        told += _told(decision)
    return encoded(told)


def take_some(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.TAKESOME charge n rung*n."""
    store = _store(session)
    most = session.shared.settings.charges_max
    if len(parts) < CHARGE_WORDS + 2:
        raise BadValue("charge", len(parts) - 1, "give its eight words, then n and n rungs")
    rungs = counted("n", parts[CHARGE_WORDS + 1], 1)
    if rungs > most or len(parts) != CHARGE_WORDS + 2 + rungs:
        raise BadValue("n", rungs, f"give as many rungs as you say, at most {most} (charges_max)")
    charge = _charge(session.shared, parts, 1, 0)
    ladder = [counted("rung", part, 0) for part in parts[CHARGE_WORDS + 2 :]]
    return _take_some(store, charge, ladder)


async def _take_some(store: Store, charge: Charge, ladder: list[int]) -> bytes:
    try:
        grant = await store.take_some(charge, ladder)
    except Exception as error:
        return refusal(error)
    return encoded([grant.at_us, grant.units, *_told(grant.decision)])


def settle(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.SETTLE taken_us|-1 n charge*n."""
    store = _store(session)
    taken_us = _whole("taken_us", parts[1], -1)
    charges = _charges(session, parts, 2, -WEIGHT_MAX)
    return _done(store.settle(charges, None if taken_us < 0 else taken_us))


def forget(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.FORGET n charge*n."""
    store = _store(session)
    return _done(store.reset(_charges(session, parts, 1, -WEIGHT_MAX)))


async def _done(work: Awaitable[None]) -> bytes:
    try:
        await work
    except Exception as error:
        return refusal(error)
    return OK


def _store(session: Session) -> Store:
    limits: RateLimits = session.shared.service
    return limits.store(identity_of(session))


def _told(decision: Decision) -> list[object]:
    reason = decision.reason
    return [
        1 if decision.allowed else 0,
        decision.remaining,
        decision.retry_after_us,
        decision.reset_after_us,
        "" if reason is None else reason.name,
    ]


def _charges(session: Session, parts: list[bytes], at: int, cost_min: int) -> list[Charge]:
    """Their number, then each."""
    most = session.shared.settings.charges_max
    count = counted("n", parts[at], 0)
    if count > most or len(parts) != at + 1 + count * CHARGE_WORDS:
        raise BadValue(
            "n", count, f"give eight words for each charge, and at most {most} (charges_max)"
        )
    starts = range(at + 1, len(parts), CHARGE_WORDS)
    return [_charge(session.shared, parts, start, cost_min) for start in starts]


def _charge(shared: Shared, parts: list[bytes], at: int, cost_min: int) -> Charge:
    said = (parts[at + 1], parts[at + 2], parts[at + 3], parts[at + 4], parts[at + 5])
    kept: dict[tuple[bytes, ...], Limit] = shared.kept
    limit = kept.get(said)
    if limit is None:
        limit = _limit(said)
        if len(kept) >= shared.settings.limits_kept_max:
            kept.clear()
        kept[said] = limit
    cost = _whole("cost", parts[at + 7], cost_min)
    return Charge(text_of(parts[at]), limit, text_of(parts[at + 6]), cost)


def _limit(said: tuple[bytes, bytes, bytes, bytes, bytes]) -> Limit:
    """A limit as it is said: algorithm count period_us burst cells."""
    algorithm = _ALGORITHMS.get(text_of(said[0]))
    if algorithm is None:
        raise BadValue("algorithm", text_of(said[0]), f"give one of {', '.join(_ALGORITHMS)}")
    count, period_us = counted("count", said[1], 1), counted("period_us", said[2], 1)
    burst, cells = counted("burst", said[3], 1), counted("cells", said[4], 1)
    bursting, sliding = algorithm in BURSTING, algorithm is Algorithm.SLIDING_WINDOW
    if not bursting and burst != count:
        raise BadValue("burst", burst, f"{algorithm.value} has none of its own; repeat the count")
    if not sliding and cells != 1:
        raise BadValue("cells", cells, f"{algorithm.value} has none; give 1")
    return Limit(
        count,
        period_us,
        burst=burst if bursting else None,
        cells=cells if sliding else None,
        algorithm=algorithm,
    )


def _flag(field: str, part: bytes) -> bool:
    if part not in (b"0", b"1"):
        raise BadValue(field, text_of(part), "give 0 or 1")
    return part == b"1"


def _whole(field: str, part: bytes, least: int) -> int:
    try:
        number = whole_number(part)
    except ValueError:
        number = WEIGHT_MAX + 1
    if not least <= number <= WEIGHT_MAX:
        raise BadValue(field, text_of(part), f"give a whole number from {least} to 2^53")
    return number
