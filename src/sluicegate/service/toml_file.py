"""TOML file: a bounded file that a flag names, or an error that names the flag."""

from __future__ import annotations

import tomllib
from typing import Any

from sluicegate.contracts.errors import BadValue


def read_toml(flag: str, path: str, bytes_max: int) -> dict[str, Any]:
    """Return the file's top table."""
    try:
        with open(path, "rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise BadValue(flag, path, f"it cannot be read: {error.strerror}") from None
    if len(data) > bytes_max:
        raise BadValue(flag, path, f"it may have at most {bytes_max:,} bytes")
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadValue(flag, path, f"it is not TOML: {error}") from None
