"""Stores: the rows by which limiters elsewhere keep their counts here, a store's operations each.

A charge is nine words: rule_id algorithm count period_us burst cells key rule cost. The rule is
that of a key whose limit several share, and else empty. What is answered is in microseconds and
whole numbers, so that the other side makes the same decision of it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from sluicegate.contracts.checks import MaybeAwaitable, RateLimits
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.contracts.store import Charge, Key, SharedKey, Store
from sluicegate.doors.resp.errors import reply_to_error
from sluicegate.doors.resp.limiter.checks import COST_MAX, parse_count
from sluicegate.doors.resp.session import RespState, Session, identity_of
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.wire.resp import OK, encode_reply, whole_number
from sluicegate.wire.text import text_of

CHARGE_WORDS: Final = 9
_ALGORITHMS: Final = {algorithm.value: algorithm for algorithm in Algorithm}


def new_limit_memo(settings: RespSettings) -> dict[tuple[bytes, ...], Limit]:
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
        return reply_to_error(error)
    values: list[object] = [ruling.at_us]
    for decision in ruling.decisions:
        values += _decision_values(decision)
    return encode_reply(values)


def take_some(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.TAKESOME charge n rung*n."""
    store = _store(session)
    most = session.state.settings.charges_max
    if len(parts) < CHARGE_WORDS + 2:
        raise BadValue("charge", len(parts) - 1, "give its nine words, then n and n rungs")
    rungs = parse_count("n", parts[CHARGE_WORDS + 1], 1)
    if rungs > most or len(parts) != CHARGE_WORDS + 2 + rungs:
        raise BadValue("n", rungs, f"give as many rungs as you say, at most {most} (charges_max)")
    charge = _charge(session.state, parts, 1, 0)
    ladder = [parse_count("rung", part, 0) for part in parts[CHARGE_WORDS + 2 :]]
    return _take_some(store, charge, ladder)


async def _take_some(store: Store, charge: Charge, ladder: list[int]) -> bytes:
    try:
        grant = await store.take_some(charge, ladder)
    except Exception as error:
        return reply_to_error(error)
    return encode_reply([grant.at_us, grant.units, *_decision_values(grant.decision)])


def settle(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.SETTLE taken_us|-1 n charge*n."""
    store = _store(session)
    taken_us = _whole("taken_us", parts[1], -1)
    charges = _charges(session, parts, 2, -COST_MAX)
    return _done(store.settle(charges, None if taken_us < 0 else taken_us))


def forget(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.FORGET n charge*n."""
    store = _store(session)
    return _done(store.reset(_charges(session, parts, 1, -COST_MAX)))


async def _done(work: Awaitable[None]) -> bytes:
    try:
        await work
    except Exception as error:
        return reply_to_error(error)
    return OK


def _store(session: Session) -> Store:
    limits: RateLimits = session.state.service
    return limits.store(identity_of(session))


def _decision_values(decision: Decision) -> list[object]:
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
    most = session.state.settings.charges_max
    count = parse_count("n", parts[at], 0)
    if count > most or len(parts) != at + 1 + count * CHARGE_WORDS:
        raise BadValue(
            "n", count, f"give nine words for each charge, and at most {most} (charges_max)"
        )
    starts = range(at + 1, len(parts), CHARGE_WORDS)
    return [_charge(session.state, parts, start, cost_min) for start in starts]


def _charge(state: RespState, parts: list[bytes], at: int, cost_min: int) -> Charge:
    words = (parts[at + 1], parts[at + 2], parts[at + 3], parts[at + 4], parts[at + 5])
    kept: dict[tuple[bytes, ...], Limit] = state.table_state
    limit = kept.get(words)
    if limit is None:
        limit = _limit(words)
        if len(kept) >= state.settings.limits_kept_max:
            kept.clear()
        kept[words] = limit
    cost = _whole("cost", parts[at + 8], cost_min)
    key: Key = text_of(parts[at + 6])
    if parts[at + 7]:
        key = SharedKey(text_of(parts[at + 6]), text_of(parts[at + 7]))
    return Charge(text_of(parts[at]), limit, key, cost)


def _limit(words: tuple[bytes, bytes, bytes, bytes, bytes]) -> Limit:
    """A limit as it is words: algorithm count period_us burst cells."""
    algorithm = _ALGORITHMS.get(text_of(words[0]))
    if algorithm is None:
        raise BadValue("algorithm", text_of(words[0]), f"give one of {', '.join(_ALGORITHMS)}")
    count, period_us = parse_count("count", words[1], 1), parse_count("period_us", words[2], 1)
    burst, cells = parse_count("burst", words[3], 1), parse_count("cells", words[4], 1)
    bursting, sliding = algorithm in BURSTING, algorithm is Algorithm.SLIDING_WINDOW
    if not bursting and burst != count:
        raise BadValue("burst", burst, f"{algorithm.value} has none of its own; repeat the count")
    if not sliding and cells != 1:
        raise BadValue("cells", cells, f"{algorithm.value} has none; give 1")
    return Limit(
        count,
        period_us=period_us,
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
        number = COST_MAX + 1
    if not least <= number <= COST_MAX:
        raise BadValue(field, text_of(part), f"give a whole number from {least} to 2^53")
    return number
