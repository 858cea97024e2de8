"""Scrub: read every row of an embedded engine and verify it, in a separate process.

    python -m sluicegate.stores.engines.scrub URL

It prints lines of JSON: `progress` now and then, `damaged` for each of the first rows, `end` with
the counts. It only reads, and may run beside the service. LMDB checks no offset within a page, so a
damaged file can end the process by a signal; its parent reports that as damage.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.stores.engines.folders import check_not_emptied, check_owner
from sluicegate.stores.urls import split_folder_url

_FILES: Final = {"lmdb": "data.mdb", "rocksdb": "CURRENT"}  # that each always has


def check_target(url: str) -> tuple[str, str]:
    """Return the scheme and the folder of an engine that can be scrubbed; nothing is opened."""
    scheme = url.partition(":")[0]
    if scheme not in _FILES:
        remedy = "give lmdb:DIR or rocksdb:DIR; other engines verify their own files"
        raise BadValue("--engine", f"{scheme}:...", remedy)
    folder, _ = split_folder_url(url, f"{scheme}:", "--engine")
    name = _FILES[scheme]
    check_owner(scheme, folder)
    check_not_emptied(scheme, folder, name)
    if not os.path.exists(os.path.join(folder, name)):
        raise BadValue("--engine", url, f"give the folder of a store; {name} is not in it")
    return scheme, folder


def scrub(url: str) -> None:
    """Verify the engine of a URL."""
    scheme, folder = check_target(url)
    if scheme == "lmdb":
        from sluicegate.stores.engines.lmdb.scrub import scrub_lmdb  # noqa: PLC0415 - if asked for

        scrub_lmdb(folder)
    else:
        from sluicegate.stores.engines.rocksdb.scrub import (  # noqa: PLC0415 - if asked for
            scrub_rocksdb,
        )

        scrub_rocksdb(folder)


if __name__ == "__main__":
    try:
        scrub(sys.argv[1])
    except SluicegateError as error:
        sys.exit(str(error))
