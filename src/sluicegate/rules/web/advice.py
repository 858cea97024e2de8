"""Advice: what is allowed in a rules file and is probably not meant.

Each check is a function over the rules; it names what follows from a rule as it stands, and what to
write instead. Advice is never an error: the file works as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from sluicegate.contracts.rule import BURSTING, Limit
from sluicegate.limits.rates import format_rate
from sluicegate.limits.rule import Failure, Mode
from sluicegate.rules.web.paths import Pattern
from sluicegate.rules.web.rule import MatchRule
from sluicegate.rules.web.rule_set import WebRuleSet

_SECRET_PATHS: Final = frozenset(
    ("2fa", "forgot", "login", "mfa", "otp", "passcode", "password", "register", "signin", "signup")
)


class Advice(NamedTuple):
    """Advice on a rule. `about` names the kind, for programs."""

    rule: str
    about: str
    words: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.words}"


def advise(book: WebRuleSet) -> list[Advice]:
    """All advice on a rule set, in the order of its rules."""
    entries = [entry for entry in book.entries if not entry.off]
    advice_list = [advice for look in _LOOKS for advice in look(entries)]
    order = {entry.rule_id: place for place, entry in enumerate(entries)}
    return sorted(advice_list, key=lambda advice: order[advice.rule])


def _never_reached(entries: Sequence[MatchRule]) -> Iterator[Advice]:
    for place, entry in enumerate(entries):
        for other in entries:
            if other.exempt and not entry.exempt and other.match.covers(entry.match):
                words = f"it never applies: {other.rule_id!r} exempts all that it matches"
                yield Advice(entry.rule_id, "never_applies", words)
                break
        for other in entries[:place]:
            if entry.exempt or not _stops_all(other) or not other.match.covers(entry.match):
                continue
            words = f"it never applies: {other.rule_id!r} matches all of it before, and stops"
            yield Advice(entry.rule_id, "never_applies", words)
            break


def _stops_all(entry: MatchRule) -> bool:
    """Whether the search ends with this rule for all that it matches."""
    if not entry.stop or entry.rule is None or entry.rule.mode is not Mode.ENFORCE:
        return False
    keys = [key for key in (entry.key, entry.or_key) if key is not None]
    return any(not key.may_miss for key in keys) or any(
        [part.text for part in key.parts] == ["address"] for key in keys
    )


def _trial_stops(entries: Sequence[MatchRule]) -> Iterator[Advice]:
    for entry in entries:
        if entry.stop and entry.rule is not None and entry.rule.mode is Mode.SHADOW:
            words = "'stop' has no effect while the rule is in shadow: a trial changes nothing"
            yield Advice(entry.rule_id, "stop_in_shadow", words)


def _shared_by_all(entries: Sequence[MatchRule]) -> Iterator[Advice]:
    for entry in entries:
        if entry.key is not None and entry.key.everyone:
            words = (
                "one bucket for everyone: one caller alone can spend it for all; "
                "put a narrower rule by address or user beside it"
            )
            if not _has_beside(entries, entry):
                yield Advice(entry.rule_id, "shared_by_all", words)
        elif entry.or_key is not None and entry.or_key.everyone:
            words = f"all that have no {entry.key} share one bucket (or_key: everyone)"
            yield Advice(entry.rule_id, "shared_by_all", words)


def _chosen_by_caller(entries: Sequence[MatchRule]) -> Iterator[Advice]:
    for entry in entries:
        if entry.key is None or not all(_is_header(part.text) for part in entry.key.parts):
            continue
        if not _has_beside(entries, entry):
            words = (
                f"who sends another {entry.key} with each request is never limited; "
                "put a rule by address beside it, unless it is checked before"
            )
            yield Advice(entry.rule_id, "chosen_by_caller", words)


def _has_beside(entries: Sequence[MatchRule], entry: MatchRule) -> bool:
    """Whether an enforced rule by address or user limits all that this one matches."""
    return any(
        other is not entry
        and other.key is not None
        and other.rule is not None
        and other.rule.mode is Mode.ENFORCE
        and any(part.text.split("/")[0] in {"address", "user"} for part in other.key.parts)
        and other.match.covers(entry.match)
        for other in entries
    )


def _is_header(part: str) -> bool:
    return part.startswith("header:")


def _never_trips(entries: Sequence[MatchRule]) -> Iterator[Advice]:
    for entry in entries:
        limits = () if entry.rule is None else tuple(_limits(entry))
        for place, limit in enumerate(limits):
            for other_place, other in enumerate(limits):
                twins = never_trips(other, limit) and other_place > place
                if other_place != place and never_trips(limit, other) and not twins:
                    words = (
                        f"its limit {format_rate(limit)} can never be reached: "
                        f"{format_rate(other)} refuses first; leave it out"
                    )
                    yield Advice(entry.rule_id, "never_trips", words)
                    break


def never_trips(limit: Limit, other: Limit) -> bool:
    """Whether what `other` admits is always within `limit`, whatever the traffic.

    In any time t, a limit admits at most so much at once and so much a period; a calendar window
    may be met at both of its edges. If that stays within what the other can hold, it never refuses.
    """
    at_once = other.burst if other.algorithm in BURSTING else 2 * other.count
    if limit.algorithm in BURSTING:
        slower = other.count * limit.period_us <= limit.count * other.period_us
        return slower and at_once <= limit.burst
    in_its_window = at_once + -(-other.count * limit.period_us // other.period_us)
    return in_its_window <= limit.count


def _costs_too_much(entries: Sequence[MatchRule]) -> Iterator[Advice]:
    for entry in entries:
        cost = entry.cost if isinstance(entry.cost, int) else entry.cost.default
        for limit in () if entry.rule is None else _limits(entry):
            if cost > limit.burst:
                words = (
                    f"every request is refused: it costs {cost:,}, "
                    f"and {format_rate(limit)} never holds more than {limit.burst:,}"
                )
                yield Advice(entry.rule_id, "costs_too_much", words)
                break


def _open_to_guessing(entries: Sequence[MatchRule]) -> Iterator[Advice]:
    for entry in entries:
        if entry.rule is None or entry.rule.mode is not Mode.ENFORCE:
            continue
        if entry.rule.failure not in {None, Failure.OPEN}:
            continue
        guessable = [str(path) for path in entry.match.paths if _words(path) & _SECRET_PATHS]
        if guessable:
            words = (
                f"while a remote store does not answer, {guessable[0]} is not limited "
                "(failure: open), and passwords can be guessed; say failure: closed or local"
            )
            yield Advice(entry.rule_id, "open_to_guessing", words)


def _words(path: Pattern) -> set[str]:
    """The words of a path, as `/user_login` and `/auth/sign-in` have them."""
    text = str(path).lower().replace("sign-", "sign").replace("log-in", "login")
    return set(re.split(r"[^a-z0-9]+", text))


def _limits(entry: MatchRule) -> list[Limit]:
    """The limits of a rule; the parser has read all rate strings."""
    limits = () if entry.rule is None else entry.rule.limits
    return [limit for limit in limits if isinstance(limit, Limit)]


_LOOKS: Final[tuple[Callable[[Sequence[MatchRule]], Iterator[Advice]], ...]] = (
    _never_reached,
    _trial_stops,
    _shared_by_all,
    _chosen_by_caller,
    _never_trips,
    _costs_too_much,
    _open_to_guessing,
)
