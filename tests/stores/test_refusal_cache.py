from __future__ import annotations

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import RATE_LIMITED
from sluicegate.stores.memory.refusal_cache import RefusalCache, with_age

S = 1_000_000


def filled_cache(**bounds: int) -> RefusalCache[str, str]:
    believed: RefusalCache[str, str] = RefusalCache(**bounds)
    believed.remember("ann", 3, "no", 10 * S, 2 * S)
    return believed


def test_a_refusal_holds_for_as_much_until_the_instant_that_it_named() -> None:
    believed = filled_cache()
    cached = believed.find("ann", 3, 12 * S - 1)
    assert cached is not None
    assert (cached.value, cached.sent_us) == ("no", 10 * S)
    assert believed.find("ann", 2, 11 * S) is None, "a smaller cost may well be admitted"
    assert believed.find("bob", 3, 11 * S) is None
    assert believed.find("ann", 3, 12 * S) is None
    assert len(believed) == 0


def test_it_is_believed_for_so_long_and_no_longer() -> None:
    believed = filled_cache(hold_us_max=S)
    assert believed.find("ann", 3, 11 * S - 1) is not None
    assert believed.find("ann", 3, 11 * S) is None


def test_a_clock_that_went_back_knows_nothing() -> None:
    assert filled_cache().find("ann", 3, 10 * S - 1) is None


def test_beyond_the_bound_the_oldest_goes() -> None:
    believed = filled_cache(keys_max=2)
    believed.remember("bob", 1, "no", 10 * S, S)
    believed.remember("ann", 4, "still no", 10 * S, S)  # takes its own place
    believed.remember("eve", 1, "no", 10 * S, S)
    assert len(believed) == 2
    assert believed.find("ann", 4, 10 * S) is None
    assert believed.find("eve", 1, 10 * S) is not None


def test_what_was_forgotten_is_asked_again() -> None:
    believed = filled_cache()
    believed.forget("ann")
    believed.forget("nobody")
    assert believed.find("ann", 3, 11 * S) is None


def test_a_refusal_told_later_names_shorter_waits() -> None:
    before = Decision(False, 0, 5, 9, RATE_LIMITED, "login")
    later = with_age(before, 4)
    assert (later.retry_after_us, later.reset_after_us) == (1, 5)
    assert (with_age(before, 100).retry_after_us, with_age(before, 100).reset_after_us) == (1, 1)
    assert (later.reason, later.rule_id, later.allowed) == (RATE_LIMITED, "login", False)
