"""Settings of a capture: what is kept, how much of it, where and how long; checked when made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges
from sluicegate.rules.resources.priorities import CLIENT_TYPE_HEADER_DEFAULT, NAME_HEADER_DEFAULT
from sluicegate.shadow.redaction import check_names
from sluicegate.shadow.secret_names import is_secret
from sluicegate.shadow.traffic import ALL

HEADERS_DEFAULT: Final = (CLIENT_TYPE_HEADER_DEFAULT, NAME_HEADER_DEFAULT)
HEADERS_MAX: Final = 64
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """A folder, a share of 10,000 entities, and the bounds.

    The key is in `key_file`; without a name it lies beside the folder, as `FOLDER.key`.
    """

    folder: str
    key_file: str = ""
    share: int = ranged(100, 0, ALL)
    redact: bool = True  # off where names must stay and nothing else is kept
    # What stays as it is: single values, and all values of a header or a descriptor's key.
    plain_values: tuple[str, ...] = ()
    plain_names: tuple[str, ...] = ()
    headers: tuple[str, ...] = HEADERS_DEFAULT  # besides those that the active rules read
    mesh_keys: tuple[str, ...] = ()  # that single out an entity; without them the first that may
    buffer_max: int = ranged(50_000, 1, 10_000_000)  # requests that wait to be written
    buffer_bytes_max: int = ranged(32 << 20, 1_024, 1 << 34)  # of text in them, about
    linger_us: int = ranged(250_000, 1_000, 60_000_000)  # between two writes
    segment_bytes_max: int = ranged(64 << 20, 1 << 20, 1 << 34)
    segment_us_max: int = ranged(900_000_000, 1_000_000, _DAY_US)
    queries_max: int = ranged(100_000, 1, 10_000_000)  # different queries a segment
    # The oldest segments go before all are larger than this, and when all in them is older.
    retain_bytes: int = ranged(1 << 30, 1 << 20, 1 << 50)
    retain_us: int = ranged(7 * _DAY_US, 1_000_000, 10_000 * _DAY_US)
    retry_us: int = ranged(5_000_000, 1_000, 3_600_000_000)  # after the disk has failed

    def __post_init__(self) -> None:
        if not self.folder or "\0" in self.folder:
            raise BadValue(
                "capture.folder", self.folder, "give a folder: /var/lib/sluicegate/capture"
            )
        check_ranges("capture", self)
        if self.retain_bytes < self.segment_bytes_max:
            remedy = f"give at least segment_bytes_max ({self.segment_bytes_max:,}) a worker"
            raise BadValue("capture.retain_bytes", self.retain_bytes, remedy)
        if len(self.headers) > HEADERS_MAX:
            raise BadValue("capture.headers", len(self.headers), f"give at most {HEADERS_MAX}")
        check_names("capture.headers", self.headers)
        for key in (*self.mesh_keys, *self.plain_names):
            if is_secret(key):
                remedy = "leave it out: what carries a secret is never kept"
                raise BadValue("capture.mesh_keys or plain_names", key, remedy)

    @property
    def key_path(self) -> str:
        """Where the key is."""
        return self.key_file or f"{self.folder.rstrip('/')}.key"
