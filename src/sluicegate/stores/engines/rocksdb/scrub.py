"""Scrub of RocksDB: every row is read once, so that RocksDB verifies the block that it is in."""

from __future__ import annotations

import rocksdict

from sluicegate.contracts.errors import DataLoss
from sluicegate.stores.engines.bounds import NUMBER_BYTES
from sluicegate.stores.engines.findings import Findings, next_starts


def scrub_rocksdb(folder: str) -> None:
    """Verify all rows of the database in a folder, which a service may have open."""
    try:
        db = rocksdict.Rdict(
            folder,
            rocksdict.Options(raw_mode=True),
            access_type=rocksdict.AccessType.read_only(False),
        )
    except Exception as error:
        raise DataLoss(f"the engine rocksdb:{folder}", f"it cannot be read: {error}") from error
    findings = Findings(int(db.property_int_value("rocksdb.estimate-num-keys") or 0))
    key = start = b"\0"
    while True:
        try:
            rows = db.iter()
            rows.seek(start)
            while rows.valid():
                key = rows.key()
                rows.value()
                if key[:NUMBER_BYTES] != bytes(NUMBER_BYTES):
                    findings.verified += 1
                findings.show_progress()
                rows.next()
            rows.status()
            break
        except Exception as error:
            findings.found_unreadable("?", key, error)
            following = next((one for one in next_starts(key) if one > start), None)
            if following is None:
                break
            key = start = following
    findings.end()
    db.close()
