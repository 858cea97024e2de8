"""Glass: whether somebody has stopped enforcement for now, as this process knows it.

Breaking the glass is for the hour in which a limit does the harm: a wrong rule, a caller that must
come through. An *opening* says what is let through (one rule or all, one key or all), until when,
who said so and why. It ends by itself.

Here are the value and the local view that a limiter asks for each decision. Nothing here reads a
source or the time: a follower (`follower.py`) writes the view, and is the only one that does.
When nothing is open a limiter reads one attribute, `broken`, and goes on.

An opening ends here by this process's own clock, even if its source cannot be asked any more: the
source says how much time is left by its clock, and that is counted from before it was asked. So
clocks that differ by minutes do not matter, and an opening may end here a round trip early, never
late. An end that was once believed is never put off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.limits.rates import parse_rates

ALL: Final = "*"  # in place of a rule's name or a key

FOR_S_MIN: Final = 1.0
FOR_S_MAX: Final = 86_400.0  # of one opening; a source may be given another
RATE_FOR_S_MAX: Final = 366 * 86_400.0  # of an opening with a rate
OPENINGS_MAX: Final = 1_000  # at once
RATES_MAX: Final = 900  # of them with a rate, so that plans leave room for an emergency
RULE_CHARS_MAX: Final = 1_000
KEY_CHARS_MAX: Final = 4_096
ID_CHARS_MAX: Final = 32
BY_CHARS_MAX: Final = 100
WHY_CHARS_MAX: Final = 500


class Opening(NamedTuple):
    """A rule or key that is not enforced, and who is responsible. Instants are the source's.

    With a `rate`, the key is not let through: that rate holds for it in place of the rule's.
    """

    id: str
    rule: str  # its name, or ALL
    key: str  # likewise
    until_us: int
    opened_at_us: int
    by: str
    why: str
    rate: str = ""

    def about(self) -> str:
        """Return what it is about, in words."""
        rule = self._rule_words()
        key = "every key" if self.key == ALL else f"key {self.key!r}"
        return f"{rule} for {key}"

    def effect(self) -> str:
        """Return what it does, in words."""
        if not self.rate:
            return f"stops {self.about()}"
        return f"holds key {self.key!r} to {self.rate!r} under {self._rule_words()}"

    def _rule_words(self) -> str:
        return "every rule" if self.rule == ALL else f"rule {self.rule!r}"


class GlassView(NamedTuple):
    """What a source says: its own instant, and what it holds, in order of opening.

    `damage` says what is wrong with it if it cannot be understood; then nothing is open.
    """

    now_us: int
    openings: Sequence[Opening]
    damage: str = ""


@final
class _TimedOpening:
    """An opening, and when it ends by this process's clock."""

    __slots__ = ("opening", "until_us")

    def __init__(self, opening: Opening, until_us: int) -> None:
        self.opening = opening
        self.until_us = until_us


@final
class _OpenIndex:
    """What stands open, to be looked up; never changed once it is made."""

    __slots__ = ("everything", "keys", "pairs", "rates", "rules", "standing")

    def __init__(self, standing: list[_TimedOpening]) -> None:
        self.standing = standing
        self.everything: _TimedOpening | None = None
        self.rules: dict[str, _TimedOpening] = {}
        self.keys: dict[str, _TimedOpening] = {}
        self.pairs: dict[tuple[str, str], _TimedOpening] = {}
        self.rates: dict[tuple[str, str], _TimedOpening] = {}
        # In the order of their ends, so that the last to end is the one that is found.
        for one in sorted(standing, key=lambda one: one.until_us):
            opening = one.opening
            if opening.rate:
                self.rates[opening.rule, opening.key] = one
            elif ALL not in (opening.rule, opening.key):
                self.pairs[opening.rule, opening.key] = one
            elif opening.rule != ALL:
                self.rules[opening.rule] = one
            elif opening.key != ALL:
                self.keys[opening.key] = one
            else:
                self.everything = one


_WHOLE: Final = _OpenIndex([])


@final
class Glass:
    """The local view. Ask `opening_for` only if `broken`; any thread may.

    `broken` is a hint: true whenever something stands open, and at times when nothing does.
    """

    __slots__ = ("_ends_us", "_pane", "_wake", "broken")

    def __init__(self) -> None:
        self.broken = False
        self._pane = _WHOLE
        # When each opening that the source still names ends here, those that have ended included.
        self._ends_us: dict[Opening, int] = {}
        self._wake: Callable[[], None] | None = None

    # For whoever decides.

    def opening_for(self, rule: str, key: str, now_us: int) -> Opening | None:
        """Return what lets `key` through `rule` now; None if nothing does."""
        wake = self._wake
        if wake is not None:
            self.awake()
            wake()
        pane = self._pane
        one = pane.everything
        if one is not None and now_us < one.until_us:
            return one.opening
        one = pane.rules.get(rule)
        if one is not None and now_us < one.until_us:
            return one.opening
        one = pane.keys.get(key)
        if one is not None and now_us < one.until_us:
            return one.opening
        if pane.pairs:
            one = pane.pairs.get((rule, key))
            if one is not None and now_us < one.until_us:
                return one.opening
        return None

    def rate_for(self, rule: str, key: str, now_us: int) -> str:
        """Return the rate that holds for `key` in place of the rule's; empty if none does."""
        rates = self._pane.rates
        if rates:
            for named in (rule, ALL):
                one = rates.get((named, key))
                if one is not None and now_us < one.until_us:
                    return one.opening.rate
        return ""

    def standing(self, now_us: int) -> list[Opening]:
        """Return all that stands open now."""
        return [one.opening for one in self._pane.standing if now_us < one.until_us]

    # For the one that follows a source.

    def show(self, view: GlassView, asked_us: int) -> None:
        """Believe what the source said when it was asked at `asked_us`, by this process's clock."""
        ends: dict[Opening, int] = {}
        standing: list[_TimedOpening] = []
        for opening in [] if view.damage else view.openings:
            # Its own length is the most that can be left, wherever the source's clock has gone.
            left_us = min(opening.until_us - view.now_us, opening.until_us - opening.opened_at_us)
            until_us = asked_us + left_us
            before_us = self._ends_us.get(opening)
            if before_us is not None and before_us < until_us:
                until_us = before_us
            ends[opening] = until_us
            if asked_us < until_us:
                standing.append(_TimedOpening(opening, until_us))
        self._ends_us = ends
        self._set_openings(standing)

    def expire(self, now_us: int) -> None:
        """Let go of what has ended."""
        self._set_openings([one for one in self._pane.standing if now_us < one.until_us])

    def mend(self) -> None:
        """Nothing is open, whatever was believed before."""
        self._ends_us = {}
        self._wake = None
        self._set_openings([])

    def sleep(self, wake: Callable[[], None]) -> None:
        """Call `wake` at the next question, once or by a few at a time; what stands open stays."""
        self._wake = wake
        self.broken = True

    def awake(self) -> None:
        """Whoever was to be woken is up."""
        self._wake = None

    def _set_openings(self, standing: list[_TimedOpening]) -> None:
        # In this order: who sees `broken` must find what is open.
        self._pane = _OpenIndex(standing) if standing else _WHOLE
        self.broken = bool(standing) or self._wake is not None


def override_decision(rule: str, remaining: int = 0) -> Decision:
    """The decision that an opening makes for a rule: allowed, and neither asked nor counted."""
    return Decision(True, remaining, 0, 0, None, rule, overridden=True, limit=remaining)


def check_opening(opening: Opening, for_us_max: int) -> Opening:
    """Return the opening, if all of it is as it must be; `BadValue` names the part that is not."""
    for field, text, chars_max in (
        ("id", opening.id, ID_CHARS_MAX),
        ("rule", opening.rule, RULE_CHARS_MAX),
        ("key", opening.key, KEY_CHARS_MAX),
    ):
        if not 1 <= len(text) <= chars_max:
            raise BadValue(f"glass.{field}", text, f"give 1 to {chars_max:,} characters")
    if not (opening.id.isascii() and opening.id.isalnum()):
        raise BadValue("glass.id", opening.id, "give letters and digits")
    check_words("by", opening.by, BY_CHARS_MAX)
    check_words("why", opening.why, WHY_CHARS_MAX)
    if opening.rate:
        parse_rates(opening.rate, field="glass.rate")
        for_us_max = round(RATE_FOR_S_MAX * 1e6)
        if opening.key == ALL:
            raise BadValue("glass.key", ALL, "name one: a rate for every key is a change of rules")
    for_us = opening.until_us - opening.opened_at_us
    if not FOR_S_MIN * 1e6 <= for_us <= for_us_max:
        remedy = f"give from {FOR_S_MIN:g} to {for_us_max / 1e6:,g} seconds"
        raise BadValue("glass.for_s", for_us / 1e6, remedy)
    return opening


def check_words(field: str, text: str, chars_max: int) -> None:
    """Words that people will read in a terminal or a log."""
    if not text.strip() or len(text) > chars_max or not text.isprintable():
        remedy = f"give words of 1 to {chars_max} printable characters, in one line"
        raise BadValue(f"glass.{field}", text, remedy)
