"""Catalogue state: which tables there are and the state of each, as one value in the engine.

It is small, changes rarely, and is compared and swapped whole, so a change of a table and of its
upload are one. A table has one space for good, `live`, by its name; all writes go there. `uploads`
says what lies beside it and when that is read. Nothing here calls an engine or a clock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from sluicegate.contracts.errors import Unavailable

CATALOGUE_VERSION: Final = 2
_READABLE_VERSIONS: Final = (1, CATALOGUE_VERSION)  # the first kept no digests
# Of an upload, in its row. When it ended is told beside: who does not know of it still reads on.
_ROW_FIELDS: Final = 11

# The phases of a table.
NORMAL: Final = "normal"
SEALING: Final = "sealing"  # writes are stamped with the new epoch; the upload is not read yet
LAYERED: Final = "layered"  # the upload is read under what has the new epoch
FOLDING: Final = "folding"  # the same, and its rows are copied into the table
FOLDED: Final = "folded"  # every row is in the table; some may still read the upload
OVERLAID_PHASES: Final = frozenset({LAYERED, FOLDING})

# The states of an upload, as `contracts.key_values.Upload` has them.
OPEN: Final = "open"
ABANDONED: Final = "abandoned"
DONE: Final = "done"
MERGE: Final = "merge"
REPLACE: Final = "replace"
MODES: Final = (MERGE, REPLACE)


class TableState(NamedTuple):
    """One table. `upload` is the id of what is being taken in, unless it is normal."""

    phase: str = NORMAL
    epoch: int = 0
    upload: str = ""


class UploadState(NamedTuple):
    """One upload, but for its parts. Its id, never used twice, names its space."""

    upload: str
    table: str
    name: str
    mode: str
    state: str
    begun_us: int
    by: str
    parts: int = 0  # these and the digest once it was committed
    rows: int = 0
    bytes: int = 0
    digest: str = ""  # that it was committed with, in hex; unknown if an older release did
    ended_us: int = 0  # when it was done or abandoned; 0 before, and if an older release did


class CatalogueState(NamedTuple):
    """All tables and uploads. `dropping` are uploads to drop once nobody reads them."""

    tables: Mapping[str, TableState]
    uploads: Mapping[str, UploadState]  # by id, oldest first
    dropping: tuple[str, ...] = ()
    begun: int = 0  # uploads, ever
    revision: int = 0  # of this text, counted up by each change; 0 if an older release wrote it


EMPTY_CATALOGUE: Final = CatalogueState({}, {})


def live_space(table: str) -> str:
    """Where a table's rows are."""
    return f"t/{table}"


def upload_space(upload: str) -> str:
    """Where an upload's rows are until they are in the table."""
    return f"u/{upload}"


def find_upload(catalogue: CatalogueState, table: str, name: str) -> UploadState | None:
    """The latest upload of that name."""
    for one in reversed(list(catalogue.uploads.values())):
        if one.table == table and one.name == name:
            return one
    return None


def with_table(catalogue: CatalogueState, table: str, state: TableState) -> CatalogueState:
    """Return the catalogue with this state of the table."""
    return catalogue._replace(tables={**catalogue.tables, table: state})


def with_upload(catalogue: CatalogueState, state: UploadState) -> CatalogueState:
    """Return the catalogue with this state of the upload."""
    return catalogue._replace(uploads={**catalogue.uploads, state.upload: state})


def without_oldest(catalogue: CatalogueState, ended_max: int) -> CatalogueState:
    """Only so many of the uploads that have ended, the last ones."""
    ended = [one.upload for one in catalogue.uploads.values() if one.state in (DONE, ABANDONED)]
    forgotten = frozenset(ended[: max(len(ended) - ended_max, 0)])
    uploads = {upload: one for upload, one in catalogue.uploads.items() if upload not in forgotten}
    return catalogue._replace(uploads=uploads)


def encode_catalogue(catalogue: CatalogueState) -> bytes:
    """Return the catalogue as it is stored."""
    record = {
        "version": CATALOGUE_VERSION,
        "tables": {name: list(state) for name, state in catalogue.tables.items()},
        "uploads": [list(state)[:_ROW_FIELDS] for state in catalogue.uploads.values()],
        "ended": {one.upload: one.ended_us for one in catalogue.uploads.values() if one.ended_us},
        "dropping": list(catalogue.dropping),
        "begun": catalogue.begun,
        "revision": catalogue.revision,
    }
    return json.dumps(record, separators=(",", ":")).encode()


def parse_catalogue(text: bytes | None) -> CatalogueState:
    """Return the stored catalogue; an empty one without."""
    if text is None:
        return EMPTY_CATALOGUE
    try:
        record = json.loads(text)
        version = record["version"]
        if version in _READABLE_VERSIONS:
            tables = {name: TableState(*state) for name, state in record["tables"].items()}
            uploads = {state[0]: UploadState(*state) for state in record["uploads"]}
            for upload, ended_us in record.get("ended", {}).items():
                if upload in uploads:
                    uploads[upload] = uploads[upload]._replace(ended_us=int(ended_us))
            return CatalogueState(
                tables,
                uploads,
                tuple(record["dropping"]),
                record["begun"],
                record.get("revision", 0),
            )
    except (ValueError, TypeError, KeyError, IndexError):
        raise Unavailable(
            "the catalogue of tables", "what is kept cannot be read; restore the engine's backup"
        ) from None
    raise Unavailable(
        "the catalogue of tables",
        f"it is of version {version}, and this release knows {CATALOGUE_VERSION}; upgrade this one",
    )


def revision_of(text: bytes | None) -> int:
    """Return the revision of a stored catalogue; -1 without one, or if it cannot be read."""
    if text is None:
        return -1
    try:
        return int(json.loads(text).get("revision", 0))
    except (ValueError, TypeError, AttributeError):
        return -1
