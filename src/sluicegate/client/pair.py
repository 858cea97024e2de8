"""Pair: who asks for what, as far as the service's rules can tell asks apart.

What a client remembers, a refusal or a lease, it remembers of a pair: the same user and resource
with another priority or other headers may fall under other rules, and is a pair of its own. The
pair also keeps what its commands say the same each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from sluicegate.contracts.criticality import Criticality, parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.wire.resp import Part, command
from sluicegate.wire.text import shorten, word_of

TEXT_CHARS_MAX: Final = 4_096
HEADERS_MAX: Final = 64
COST_MAX: Final = (1 << 32) - 1

# The words of a command behind its name: user, resource, and what tells the rules more.
Pair: TypeAlias = tuple[Part, ...]


def pair_of(
    user: str,
    resource: str,
    priority: Criticality | str | None,
    headers: Mapping[str, str],
) -> Pair:
    """Return the pair of a request; the order and the case of header names make no other pair."""
    if priority is None and not headers:
        return (_word(user), _word(resource))
    words: list[Part] = [_word(user), _word(resource)]
    if priority is not None:
        if not isinstance(priority, Criticality):
            priority = parse_criticality(priority, field="priority")
        words += ("PRIORITY", priority.name)
    if len(headers) > HEADERS_MAX:
        raise BadValue("headers", f"{len(headers)} headers", f"give at most {HEADERS_MAX}")
    for name, value in sorted((name.lower(), value) for name, value in headers.items()):
        words += ("HEADER", _word(name), _word(value))
    return tuple(words)


def check_cost(cost: int) -> int:
    """Return the cost, if it is one."""
    value: object = cost
    if not isinstance(value, int) or not 0 <= value <= COST_MAX:
        raise BadValue("cost", cost, "give a whole number from 0 to 2^32 - 1")
    return cost


def check_command(name: str, pair: Pair, cost: int) -> bytes:
    """SG.CHECK or SG.PEEK."""
    if cost == 1:
        return command(name, *pair)
    return command(name, *pair[:2], "WEIGHT", cost, *pair[2:])


def lease_command(pair: Pair, units: int) -> bytes:
    """SG.LEASE."""
    return command("SG.LEASE", *pair[:2], units, *pair[2:])


def _word(text: str) -> Part:
    """Return a text of any length: of a longer one its beginning and a digest of all."""
    return word_of(shorten(text, TEXT_CHARS_MAX))
