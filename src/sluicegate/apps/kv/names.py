"""Names: which tables, keys and values are valid; an error names the bound."""

from __future__ import annotations

import re
from typing import Final

from sluicegate.contracts.engine import PARTITION_BYTES_MAX, SORT_BYTES_MAX
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import TABLE_CHARS_MAX

_TABLE: Final = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{TABLE_CHARS_MAX - 1}}}")
NAMES_MAX: Final = 10_000  # names that are known to be right, so that none is looked at twice
_valid_names: Final[set[str]] = set()


def check_table(table: str) -> None:
    """Raise `BadValue` for an invalid table name."""
    if table in _valid_names:
        return
    if not _TABLE.fullmatch(table):
        remedy = f"name a table by 1 to {TABLE_CHARS_MAX} of a-z, 0-9 and - _ . after the first"
        raise BadValue("table", table, remedy)
    if len(_valid_names) < NAMES_MAX:
        _valid_names.add(table)


def check_key(partition: bytes, sort: bytes) -> None:
    """A partition and a sort key within their bounds."""
    if not 0 < len(partition) <= PARTITION_BYTES_MAX:
        raise BadValue("partition", partition, f"give from 1 to {PARTITION_BYTES_MAX} bytes")
    if len(sort) > SORT_BYTES_MAX:
        raise BadValue("sort key", sort, f"give at most {SORT_BYTES_MAX} bytes")


def check_value(value: bytes | None, bytes_max: int) -> None:
    """A value within the bound of the settings."""
    if value is not None and len(value) > bytes_max:
        size = f"{len(value):,} bytes"
        raise BadValue("value", size, f"give at most {bytes_max:,} (--value-bytes-max)")
