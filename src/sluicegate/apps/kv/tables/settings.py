"""Settings of tables: bounds, and how stale another process may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sluicegate.contracts.engine import VALUE_BYTES_MAX
from sluicegate.contracts.errors import BadValue
from sluicegate.wire.row_envelope import ENVELOPE_BYTES_MAX

_LEAST_ONE: Final = (
    "stale_us",
    "look_wait_us",
    "write_timeout_us",
    "tables_max",
    "scan_rows_max",
    "swap_tries_max",
    "removals_at_once",
    "uploads_max",
    "ended_uploads_max",
    "parts_max",
    "part_bytes_max",
    "part_rows_max",
    "upload_bytes_max",
    "fold_rows",
    "fold_at_once",
    "lease_us",
    "sweep_rows",
    "sweep_at_once",
    "sweep_pause_us",
    "commit_wait_us",
)


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Bounds and times; the defaults suit a dispatcher that serves."""

    stale_us: int = 500_000  # what is known of tables is this old at most; used up to twice that
    look_wait_us: int = 1_000_000  # a request waits this long to know a table, then it fails
    read_stale_us: int = 30_000_000  # reads may use what is this old while no newer can be had
    write_timeout_us: int = 2_000_000  # a write that took longer is looked at again
    tables_max: int = 10_000
    value_bytes_max: int = VALUE_BYTES_MAX - ENVELOPE_BYTES_MAX
    scan_rows_max: int = 10_000  # looked at for one answer; then it comes short, with a token
    swap_tries_max: int = 16
    removals_at_once: int = 64  # partitions that one call removes rows of
    uploads_max: int = 16  # open at once; one in a table
    ended_uploads_max: int = 64  # told about after their end
    parts_max: int = 10_000
    part_bytes_max: int = 16 << 20
    part_rows_max: int = 100_000
    upload_bytes_max: int = 1 << 40
    load_pause_us: int = 1_000  # between two bites of all parts, of some hundred rows; 0: none
    commit_wait_us: int = 30_000_000
    fold_rows: int = 256  # in one admission
    fold_at_once: int = 64  # swaps in flight
    lease_us: int = 5_000_000  # whoever folds says so this often, else another does
    sweep_rows: int = 500  # looked at in one admission
    sweep_at_once: int = 64  # swaps in flight
    sweep_pause_us: int = 100_000
    purge_after_us: int = 3_600_000_000  # an engine may forget what expired so long ago

    def __post_init__(self) -> None:
        for name in _LEAST_ONE:
            if getattr(self, name) < 1:
                raise BadValue(name, getattr(self, name), "at least 1")
        if self.read_stale_us < 0:
            raise BadValue("read_stale_us", self.read_stale_us, "0 for never, or more")
        if self.load_pause_us < 0:
            raise BadValue("load_pause_us", self.load_pause_us, "0 for none, or more")
        if not 1 <= self.value_bytes_max <= VALUE_BYTES_MAX - ENVELOPE_BYTES_MAX:
            most = VALUE_BYTES_MAX - ENVELOPE_BYTES_MAX
            raise BadValue("value_bytes_max", self.value_bytes_max, f"1 to {most:,}")

    @property
    def settle_us(self) -> int:
        """After so long nobody acts on the state before a change."""
        return 2 * self.stale_us + self.write_timeout_us
