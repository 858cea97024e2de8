"""Headers: a judgement as the fields of a response.

The style `ietf` writes `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11,
structured fields), `legacy` writes `X-RateLimit-Limit`, `-Remaining` and `-Reset`, `both` writes
all of them and `none` none. `Retry-After` stands on refusals only, and not where no retry can help.
`X-RateLimit-Error` says that the limit's store could not be asked.

    RateLimit-Policy: "login";q=5;w=60
    RateLimit: "login";r=3;t=12

`r` is what is left, and `t` the seconds until more is there, rounded up. `w` is the period, left
out unless it is whole seconds, because the draft knows no others. A burst that is not the count is
told as `sluicegate-burst`. What a rule only tries out is not told, and neither is a count that
nobody made: with the store away the policy still stands there, and `RateLimit` does not.

On the hot path: what a limit says the same each time is written once. Only text is made here; who
sets it, and beside which others, is a door's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.edge import Given
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement, RuleDecision
from sluicegate.contracts.reasons import STORE_UNAVAILABLE, Reason
from sluicegate.contracts.rule import BURSTING, Limit

# A structured field's integer has at most 15 digits.
INTEGER_MAX: Final = 999_999_999_999_999
# Limits whose text is kept; beyond that it is written anew, and nothing else happens.
LIMITS_KEPT: Final = 10_000
STYLES: Final = ("ietf", "legacy", "both", "none")

POLICY: Final = "ratelimit-policy"
RATELIMIT: Final = "ratelimit"
LEGACY_LIMIT: Final = "x-ratelimit-limit"
LEGACY_REMAINING: Final = "x-ratelimit-remaining"
LEGACY_RESET: Final = "x-ratelimit-reset"
RETRY_AFTER: Final = "retry-after"
ERROR: Final = "x-ratelimit-error"
RULE: Final = "x-ratelimit-rule"
NO_RULE: Final = "none"  # its value where no rule matched, so nothing was counted

_SECOND_US: Final = 1_000_000
_RAW_NAMES: Final = frozenset(
    name.encode("ascii")
    for name in (
        POLICY,
        RATELIMIT,
        LEGACY_LIMIT,
        LEGACY_REMAINING,
        LEGACY_RESET,
        RETRY_AFTER,
        ERROR,
    )
)


@final
class LimitText:
    """The part of the fields that is the same each time, for one limit under one name."""

    __slots__ = ("burst", "item", "limit", "pace_count", "pace_us", "policy", "raw_policy")

    def __init__(self, name: str, limit: Limit) -> None:
        quoted = quote(name)
        policy = f"{quoted};q={min(limit.count, INTEGER_MAX)}"
        if limit.period_us % _SECOND_US == 0:
            policy += f";w={limit.period_us // _SECOND_US}"
        if limit.burst != limit.count:
            policy += f";sluicegate-burst={min(limit.burst, INTEGER_MAX)}"
        self.policy = policy
        self.raw_policy = (b"ratelimit-policy", policy.encode("ascii"))
        self.item = f"{quoted};r="
        self.limit = limit
        # A paced limit gives its units back one by one; a window gives them back when it ends.
        paced = limit.algorithm in BURSTING
        self.pace_us = limit.period_us if paced else 0
        self.pace_count = limit.count
        self.burst = limit.burst

    def more_after_us(self, decision: Decision) -> int:
        """How long no more than what is left can be used; 0 if nothing is used."""
        if not decision.allowed and decision.retry_after_us >= 0:
            # A dear request may have to wait for several units; it is told the whole wait.
            return decision.retry_after_us
        reset_us = decision.reset_after_us
        if self.pace_us and reset_us > 0:
            # Whole again in `reset_us`, and all but the next unit come after the next one.
            later = self.burst - max(decision.remaining, 0) - 1
            if later > 0:
                reset_us -= later * self.pace_us // self.pace_count
        return reset_us


@final
class Fields:
    """Writes the fields of judgements, in one style."""

    __slots__ = ("_doubles", "_words", "ietf", "legacy", "limits_kept", "style")

    def __init__(self, style: str = "ietf", *, limits_kept: int = LIMITS_KEPT) -> None:
        if style not in STYLES:
            raise BadValue("headers", style, f"give one of {', '.join(STYLES)}")
        self.limits_kept = limits_kept
        self.style = style
        self.ietf = style in {"ietf", "both"}
        self.legacy = style in {"legacy", "both"}
        self._words: dict[str, LimitText] = {}
        self._doubles: dict[tuple[str, int], LimitText] = {}

    def raw(self, judgement: Judgement) -> list[tuple[bytes, bytes]]:
        """The fields as bytes. What is asked most, one limit that admits, takes a short way."""
        decisions = judgement.decisions
        if len(decisions) == 1 and self.ietf and not self.legacy:
            name, limit, decision = decisions[0]
            if decision.allowed and not decision.degraded and not decision.shadow:
                words = self._words.get(name)
                if words is None or words.limit is not limit:
                    words = self._words_of(name, limit)
                return [words.raw_policy, (b"ratelimit", _item(words, decision).encode("ascii"))]
        return [(name.encode("ascii"), text.encode("ascii")) for name, text in self.of(judgement)]

    def of(self, judgement: Judgement) -> list[tuple[str, str]]:
        """Names in lower case, and their values."""
        headers: list[tuple[str, str]] = []
        decision = judgement.decision
        if self.ietf:
            self._add_ietf(headers, judgement)
        if self.legacy:
            self._add_legacy(headers, judgement)
        if self.style != "none" and (decision.degraded or _any_degraded(judgement)):
            headers.append((ERROR, STORE_UNAVAILABLE.name))
        if not decision.allowed:
            seconds = retry_after_s(decision)
            if seconds > 0:
                headers.append((RETRY_AFTER, str(seconds)))
        return headers

    def _add_ietf(self, headers: list[tuple[str, str]], judgement: Judgement) -> None:
        decisions = judgement.decisions
        if len(decisions) == 1:
            name, limit, decision = decisions[0]
            if decision.shadow:
                return
            words = self._words.get(name)
            if words is None or words.limit is not limit:
                words = self._words_of(name, limit)
            headers.append((POLICY, words.policy))
            if not decision.degraded:
                headers.append((RATELIMIT, _item(words, decision)))
            return
        policies: list[str] = []
        items: list[str] = []
        names: set[str] = set()
        for name, limit, decision in decisions:
            if decision.shadow:
                continue
            own = name
            while own in names:
                own = f"{name} #{len(names) + 1}"
            names.add(own)
            words = self._words.get(own)
            if words is None or words.limit is not limit:
                words = self._words_of(own, limit)
            policies.append(words.policy)
            if not decision.degraded:
                items.append(_item(words, decision))
        if policies:
            headers.append((POLICY, ", ".join(policies)))
        if items:
            headers.append((RATELIMIT, ", ".join(items)))

    def _add_legacy(self, headers: list[tuple[str, str]], judgement: Judgement) -> None:
        """The older fields know one limit: the one that binds."""
        binding = None
        for one in judgement.decisions:
            if one.decision.shadow or one.decision.degraded:
                continue
            if one.decision is judgement.decision:
                binding = one
                break
            if binding is None or _tighter(one.decision, binding.decision):
                binding = one
        if binding is None:
            return
        decision = binding.decision
        headers.append((LEGACY_LIMIT, str(binding.limit.burst)))
        headers.append((LEGACY_REMAINING, str(max(decision.remaining, 0))))
        headers.append((LEGACY_RESET, str(_whole_s(decision.reset_after_us))))

    def _words_of(self, name: str, limit: Limit) -> LimitText:
        """The words of a limit that is new, or shares its name with another."""
        key = (name, id(limit))  # held by what is kept, so the id stays its own
        words = self._doubles.get(key)
        if words is None:
            words = LimitText(name, limit)
            if len(self._doubles) >= self.limits_kept:
                self._doubles.clear()
                self._words.clear()
            self._doubles[key] = words
        self._words[name] = words
        return words


def response_headers(
    decision: Given[Decision], limit: Given[Limit | None] = None, *, style: Given[str] = "ietf"
) -> dict[str, str]:
    """Return the headers that tell a caller of a decision, as `{"retry-after": "30"}`.

    With its `limit` (`limiter.limits_of(rule)[0]`) they include the policy and the remaining units.
    """
    _check_type("decision", decision, Decision, "give the result of limiter.take()")
    if limit is not None:
        remedy = 'give limiter.limits_of(rule)[0], and the style by its name: style="legacy"'
        _check_type("limit", limit, Limit, remedy)
    counted = () if limit is None else (RuleDecision(decision.rule_id, limit, decision),)
    return dict(Fields(style).of(Judgement(decision, counted)))


def _check_type(field: str, given: object, wanted: type, remedy: str) -> None:
    if not isinstance(given, wanted):
        raise BadValue(field, given, remedy)


def quote(name: str) -> str:
    """A name as a structured field's string; what such a string cannot hold is percent-encoded."""
    if not (name.isascii() and name.isprintable()):
        name = "".join(_encoded(char) for char in name)
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def retry_after_s(decision: Decision) -> int:
    """Whole seconds after which a refused request may come again; 0 if no retry can help."""
    reason = decision.reason
    if decision.retry_after_us < 0 or (reason is not None and not reason.retryable):
        return 0
    # At least a second: a refused client that comes back at once helps nobody.
    return max(_whole_s(decision.retry_after_us), 1)


def add_missing_fields(
    headers: Iterable[tuple[bytes, bytes]], raw: list[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """Their headers, and of these fields those that are not there: what the program said stands."""
    whole = list(headers)
    for name, _ in whole:
        if name.lower() in _RAW_NAMES:
            present = {name.lower() for name, _ in whole}
            return whole + [one for one in raw if one[0] not in present]
    whole += raw
    return whole


def unavailable(rule_id: str = "") -> Judgement:
    """The judgement when a guard has no answer: not the caller's fault, and no crash either."""
    return refusal(STORE_UNAVAILABLE, rule_id, degraded=True)


def refusal(reason: Reason, rule_id: str = "", *, degraded: bool = False) -> Judgement:
    """A refusal for a reason that no limit has decisions."""
    return Judgement(Decision(False, 0, 0, 0, reason, rule_id, degraded), ())


def _item(words: LimitText, decision: Decision) -> str:
    remaining = decision.remaining
    if remaining < 0:
        remaining = 0
    elif remaining > INTEGER_MAX:
        remaining = INTEGER_MAX
    after_us = words.more_after_us(decision)
    if after_us <= 0:
        return f"{words.item}{remaining}"
    return f"{words.item}{remaining};t={-(-after_us // _SECOND_US)}"


def _whole_s(after_us: int) -> int:
    """Seconds, rounded up; never negative."""
    return -(-after_us // _SECOND_US) if after_us > 0 else 0


def _tighter(one: Decision, other: Decision) -> bool:
    if one.allowed != other.allowed:
        return other.allowed
    return one.remaining < other.remaining


def _any_degraded(judgement: Judgement) -> bool:
    for one in judgement.decisions:  # noqa: SIM110 - the loop is what the hot path can afford
        if one.decision.degraded:
            return True
    return False


def _encoded(char: str) -> str:
    if char.isascii() and char.isprintable():
        return char
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
