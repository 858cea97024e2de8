"""Criticality: how much it matters that a unit of work gets through, in four classes.

What is shed first stands last. A caller may claim a class; which it may claim is a policy's
business.
"""

from __future__ import annotations

from enum import IntEnum

from sluicegate.contracts.errors import BadValue


class Criticality(IntEnum):
    """The four classes; a smaller number matters more."""

    CRITICAL = 0
    DEGRADED = 1
    BEST_EFFORT = 2
    BULK = 3


# The class of work without a claim: never CRITICAL, or silence would outrank a claim.
DEFAULT_CRITICALITY = Criticality.DEGRADED


def parse_criticality(text: str, *, field: str = "criticality") -> Criticality:
    """The class of that name, in any case and with `-` or `_`."""
    found = _BY_NAME.get(text.strip().upper().replace("-", "_"))
    if found is None:
        raise BadValue(field, text, f"give one of {', '.join(_BY_NAME)}")
    return found


_BY_NAME = {member.name: member for member in Criticality}
