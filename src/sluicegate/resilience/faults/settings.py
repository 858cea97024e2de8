"""Settings of fault injection: what is to go wrong, where, and how often.

[faults]
on = true
seed = 7

[faults.rules.slow-prices]
route = "/price/*"
share = 0.1
delay_us = 300_000
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges, one_of, part_of
from sluicegate.resilience.tables import build, table_of

FIXED: Final = "fixed"
EVEN: Final = "even"
EXPONENTIAL: Final = "exponential"
SPREADS: Final = (FIXED, EVEN, EXPONENTIAL)

DELAY_US_MAX: Final = 600_000_000
RULES_MAX: Final = 100
_STATUSES: Final = frozenset(int(status) for status in HTTPStatus if status >= 400)
_NAME_CHARS_MAX: Final = 60
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@final
@dataclass(frozen=True, kw_only=True)
class FaultRule:
    """One fault: which requests it meets, and what happens to them.

    `route` is a path, a gRPC method or a URL's path, in which `*` stands for anything. `header` is
    `name` or `name=value`. Of those, `share` are met. The delay is `delay_us` on average: exactly
    (`fixed`), from 0 to twice as much (`even`), or with a long tail up to `delay_us_max`
    (`exponential`). Then the work is done, or, with one of the other three, it is not: `status`
    answers, `error` raises, `abort` breaks the connection.
    """

    route: str = "*"
    header: str = ""
    share: float = 1.0
    delay_us: int = ranged(0, 0, DELAY_US_MAX)
    spread: str = FIXED
    delay_us_max: int = ranged(30_000_000, 1, DELAY_US_MAX)
    status: int = 0
    error: str = ""
    abort: bool = False

    def __post_init__(self) -> None:
        check_ranges("fault", self)
        part_of("fault.share", self.share, 0.0, 1.0)
        one_of("fault.spread", self.spread, SPREADS)
        if self.header and not _TOKEN.fullmatch(self.header.partition("=")[0].strip()):
            raise BadValue("fault.header", self.header, "give a header's name, or name=value")
        if self.status and self.status not in _STATUSES:
            raise BadValue("fault.status", self.status, "give one that HTTP names, 400 to 599")
        ends = sum((self.status > 0, bool(self.error), self.abort))
        if ends > 1:
            raise BadValue("fault.status", self.status, "give one of status, error and abort")
        if ends == 0 and self.delay_us == 0:
            raise BadValue("fault.delay_us", 0, "give a delay, a status, an error or an abort")

    def sentence(self) -> str:
        """Say what it does and to whom."""
        does = []
        if self.delay_us:
            does.append(f"waits {self.delay_us / 1e6:g} s ({self.spread})")
        if self.status:
            does.append(f"answers {self.status}")
        if self.error:
            does.append(f"raises {self.error!r}")
        if self.abort:
            does.append("breaks the connection")
        whom = f"{self.share:.2%} of {self.route}"
        return f"{' and '.join(does)}, {whom}{f' with {self.header}' if self.header else ''}"


@final
@dataclass(frozen=True, kw_only=True)
class FaultSettings:
    """All faults by their names, whether they are on, and the seed of their draws."""

    on: bool = False
    seed: int = 0
    bypass: tuple[str, ...] = ("/healthz", "/readyz", "/health", "/ready", "/livez", "/metrics")
    rules: Mapping[str, FaultRule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.rules) > RULES_MAX:
            raise BadValue("faults.rules", len(self.rules), f"name at most {RULES_MAX}")
        for name in self.rules:
            if not name.isascii() or not name.isprintable() or not 0 < len(name) < _NAME_CHARS_MAX:
                remedy = f"give up to {_NAME_CHARS_MAX} printable ASCII characters"
                raise BadValue("faults.rules", name, remedy)


def fault_settings(table: Mapping[str, Any]) -> FaultSettings:
    """Return the settings of a `[faults]` table."""
    values = dict(table)
    rules = table_of("faults.rules", values.pop("rules", {}))
    values["rules"] = {
        name: build(f"faults.rules.{name}", FaultRule, found, {}) for name, found in rules.items()
    }
    return build("faults", FaultSettings, values, {})
