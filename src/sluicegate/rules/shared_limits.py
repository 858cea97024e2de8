"""SharedLimits: the few different limits that a million rules say, each known to a limiter once.

A limiter keeps a table for each of its rules, and a service may have more rules than tables would
be wise. So rules with the same limit on the same terms share a *shape*, the limiter's rule, and
name themselves in their keys (`SharedKey`, see `contracts/store.py`). What a shape is called
follows from what it says: a rule that stays as it is keeps its counts over any reload.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import SHARED
from sluicegate.limits.rule import Mode, Rule

SHARED_LIMITS_MAX_DEFAULT: Final = 10_000


@final
class SharedLimits:
    """Collects the shared_limits of a book while it is compiled; `rules` is for `replace_rules`."""

    __slots__ = ("_rules_max", "rules")

    def __init__(self, shared_limits_max: int = SHARED_LIMITS_MAX_DEFAULT) -> None:
        self._rules_max = shared_limits_max
        self.rules: dict[str, Rule] = {}

    def name(self, rule: Rule) -> str:
        """The name of the shape of a rule with one `Limit`."""
        name = shared_limit_id(rule)
        if name not in self.rules:
            if len(self.rules) >= self._rules_max:
                raise BadValue(
                    "rules",
                    f"{len(self.rules) + 1:,} different limits",
                    f"say at most {self._rules_max:,} (shared_limits_max)",
                )
            self.rules[name] = rule
        return name


def shared_limit_id(rule: Rule) -> str:
    """What a shape is called: all that it says, in one line without a slash."""
    limit = rule.limits[0]
    if not isinstance(limit, Limit) or len(rule.limits) != 1:
        raise BadValue("rule.limits", rule.limits, "give one Limit")
    words = [f"{limit.count} per {limit.period_us}us", limit.algorithm.value]
    if limit.burst != limit.count:
        words.append(f"burst {limit.burst}")
    if limit.cells != 1:
        words.append(f"cells {limit.cells}")
    if rule.failure is not None:
        words.append(rule.failure.value)
    if rule.local_share is not None:
        words.append(f"share {rule.local_share}")
    if rule.lease is not None:
        words.append(f"lease {rule.lease}")
    if rule.mode is not Mode.ENFORCE:
        words.append(rule.mode.value)
    if rule.count_refused is not None:
        words.append("counts refused" if rule.count_refused else "forgives refused")
    return SHARED + " ".join(words)
