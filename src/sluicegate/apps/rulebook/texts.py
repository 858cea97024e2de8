"""Texts: rules files on disk, as the changes of a proposal."""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.reading import read_bytes
from sluicegate.rules.service_book import FILE_BYTES_MAX, find_files


def texts_of(paths: Sequence[str], *, under: str) -> dict[str, str | None]:
    """The texts of files, and of all that folders hold, by their names in the rulebook."""
    prefix = f"{under.strip('/')}/" if under.strip("/") else ""
    found: dict[str, str | None] = {}
    for path, name in find_files(paths):
        if f"{prefix}{name}" in found:
            raise BadValue("PATH", path, f"another file is called {name} too; give them apart")
        try:
            found[f"{prefix}{name}"] = read_bytes(path, FILE_BYTES_MAX).decode("utf-8")
        except UnicodeDecodeError:
            raise BadValue("PATH", path, "it is not text in UTF-8") from None
    return found
