"""Settings of the key-value service's routes: what they allow, each by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.key_values_messages import KV_BOUNDS, KvBounds

QUOTA_STATUSES: Final = (429, 419)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KvHttpSettings:
    """What the routes allow. `hosts` are the Host values that are ours; None is any.

    `quota_status` answers a caller whose request units are spent: 429, or 419, which no other
    refusal has.
    """

    hosts: frozenset[str] | None = None
    metrics_open: bool = False
    quota_status: int = 429
    bounds: KvBounds = KV_BOUNDS
    part_bytes_max: int = 8 << 20  # of an upload
    json_bytes_max: int = 4 << 20  # of whatever is asked in JSON
    version: str = "0.1.0"  # as the document tells it

    def __post_init__(self) -> None:
        if self.quota_status not in QUOTA_STATUSES:
            raise BadValue("kv.quota_status", self.quota_status, "give 429 or 419")
        for name, least, most in (
            ("part_bytes_max", 1_024, 256 << 20),
            ("json_bytes_max", 1_024, 256 << 20),
        ):
            value = int(getattr(self, name))
            if not least <= value <= most:
                raise BadValue(f"kv.{name}", value, f"give a number from {least:,} to {most:,}")

    @property
    def body_bytes_max(self) -> int:
        """The longest body of all: what `HttpSettings.body_bytes_max` must let through."""
        return max(self.bounds.value_bytes_max, self.part_bytes_max, self.json_bytes_max)
