"""Settings of `sluicegate up`: words from the command line in, checked values out.

Nothing is started here, and nothing beyond the standard library and the contracts is imported, so
that a wrong flag is an error before anything else happens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, NamedTuple

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.rates import parse_rate

LISTEN_DEFAULT: Final = "127.0.0.1:7000"
LOAD_PER_S_DEFAULT: Final = 400
LOAD_PER_S_MAX: Final = 5_000
RULES_MAX: Final = 64
KEYS_MAX: Final = 100_000  # tracked for each rule
PORT_MAX: Final = 65_535

DEMO_RULES: Final = (
    "api = 10/s burst 20",
    "search = 5/s burst 25 by token_bucket",
    "pages = 60/min burst 15",
    "export = 100/s burst 600 by leaky_bucket",
    "login = 5/min by sliding_log",
)

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_LISTEN: Final = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]{1,5})")
_LISTEN_REMEDY: Final = "write it as HOST:PORT, for example 127.0.0.1:7000; port 0 takes a free one"
_RULE_REMEDY: Final = 'write it as "NAME = RATE", for example "api = 10/s burst 20"'


class NamedRule(NamedTuple):
    """A limit with a name, and the words it was written in."""

    name: str
    rate: str
    limit: Limit


@dataclass(frozen=True, slots=True)
class Settings:
    """The flags, as checked values."""

    host: str
    port: int
    rules: tuple[NamedRule, ...]
    load_per_s: int = 0
    for_s: float | None = None
    plain: bool = False
    insecure: bool = False
    alone: bool = False


def parse_listen(text: str, *, insecure: bool = False) -> tuple[str, int]:
    """Host and port; only a loopback address, unless `insecure`."""
    found = _LISTEN.fullmatch(text.strip())
    if found is None or int(found["port"]) > PORT_MAX:
        raise BadValue("--listen", text, _LISTEN_REMEDY)
    host = found["six"] if found["six"] is not None else found["host"]
    if host == "localhost":
        host = "127.0.0.1"
    try:
        address = ip_address(host)
    except ValueError:
        remedy = "give an IP address or localhost; names are not looked up"
        raise BadValue("--listen", text, remedy) from None
    if not (address.is_loopback or insecure):
        raise BadValue(
            "--listen",
            text,
            "it can be reached from outside, and here is no authentication and no TLS: "
            "use 127.0.0.1, or say --insecure",
        )
    return str(address), int(found["port"])


def parse_rules(texts: Iterable[str]) -> tuple[NamedRule, ...]:
    """Rules from `"name = rate [by algorithm]"`; one text may hold several, with `;` between."""
    rules: dict[str, NamedRule] = {}
    for text in (part for whole in texts for part in whole.split(";") if part.strip()):
        rule = _parse_rule(text)
        if rule.name in rules:
            raise BadValue("--rules", text, f"there is a rule {rule.name!r} already; rename one")
        if len(rules) >= RULES_MAX:
            raise BadValue("--rules", text, f"{RULES_MAX} rules are the most; leave some out")
        rules[rule.name] = rule
    if not rules:
        raise BadValue("--rules", "", _RULE_REMEDY)
    return tuple(rules.values())


def parse_load(text: str) -> int:
    """Requests a second for the demo load; 0 is none."""
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) > LOAD_PER_S_MAX:
        remedy = f"give whole requests a second, from 0 to {LOAD_PER_S_MAX:,}"
        raise BadValue("--load", text, remedy)
    return int(text)


def parse_for(text: str) -> float:
    """Seconds until it ends by itself."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BadValue("--for", text, "give seconds, more than 0")
    return seconds


def rule_words(rules: Sequence[NamedRule]) -> list[str]:
    """Words that `parse_rules` reads back as the same rules."""
    return [f"{rule.name} = {rule.rate} by {rule.limit.algorithm.value}" for rule in rules]


def _parse_rule(text: str) -> NamedRule:
    name, equals, words = (part.strip() for part in text.partition("="))
    if not equals or not _NAME.fullmatch(name):
        raise BadValue(
            "--rules", text, f"{_RULE_REMEDY}; a name is 1 to 32 of a-z, 0-9, _ and -, a-z first"
        )
    rate, by, algorithm = re.sub(r"\s+", " ", words).partition(" by ")
    if by and algorithm not in _ALGORITHMS:
        raise BadValue("--rules", text, f"count by one of {', '.join(_ALGORITHMS)}")
    limit = parse_rate(
        rate, algorithm=_ALGORITHMS.get(algorithm, Algorithm.GCRA), field=f"--rules {name}"
    )
    return NamedRule(name, rate, limit)


_ALGORITHMS: Final = {member.value: member for member in Algorithm}
