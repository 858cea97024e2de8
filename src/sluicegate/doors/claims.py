"""Claims: what a request says of itself beside its question, the same over HTTP and gRPC.

    X-Sluicegate-Criticality: best-effort     how much it matters; a policy settles it
    X-Sluicegate-Deadline-Ms: 250             how long an answer is of use (gRPC has grpc-timeout)
    X-Sluicegate-Strong: true                 pass by every cache

A claim that cannot be understood is an error and never a default: silence would pass for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sluicegate.contracts.criticality import Criticality, parse_criticality
from sluicegate.contracts.errors import BadValue

CRITICALITY: Final = b"x-sluicegate-criticality"
DEADLINE_MS: Final = b"x-sluicegate-deadline-ms"
STRONG: Final = b"x-sluicegate-strong"
LEFT_MS_MAX: Final = 86_400_000

_CLAIM_CHARS_MAX: Final = 32
_YES: Final = (b"true", b"1")
_NO: Final = (b"false", b"0")


def criticality_of(values: Sequence[bytes]) -> Criticality | None:
    """What is claimed; None without a claim."""
    value = _once(CRITICALITY, values)
    if not value:
        return None
    field, text = CRITICALITY.decode("ascii"), value.decode("latin-1")
    if len(text) > _CLAIM_CHARS_MAX:
        # Cut, it could become the name of a class that was never claimed.
        raise BadValue(field, text, f"name a class, in at most {_CLAIM_CHARS_MAX} characters")
    return parse_criticality(text, field=field)


def left_us_of(values: Sequence[bytes]) -> int:
    """How long an answer is of use, in microseconds; -1 if nothing is value."""
    value = _once(DEADLINE_MS, values)
    if not value:
        return -1
    if not value.isdigit() or len(value) > 10 or int(value) > LEFT_MS_MAX:
        remedy = f"give whole milliseconds from 0 to {LEFT_MS_MAX:,}"
        raise BadValue(DEADLINE_MS.decode("ascii"), value.decode("latin-1"), remedy)
    return int(value) * 1_000


def strong_of(values: Sequence[bytes]) -> bool:
    """Whether every cache is to be passed by."""
    value = _once(STRONG, values).lower()
    if value in _YES:
        return True
    if value and value not in _NO:
        raise BadValue(STRONG.decode("ascii"), value.decode("latin-1"), "give true or false")
    return False


def _once(name: bytes, values: Sequence[bytes]) -> bytes:
    if len(values) > 1:
        raise BadValue(name.decode("ascii"), "two values", "send it once")
    return values[0].strip() if values else b""
