"""Scrub of LMDB: every row against its checksums, and the number of rows against LMDB's own."""

from __future__ import annotations

from typing import Final

import lmdb

from sluicegate.contracts.errors import DataLoss
from sluicegate.stores.engines.bounds import NUMBER_BYTES
from sluicegate.stores.engines.findings import Findings, next_starts
from sluicegate.stores.engines.lmdb.layout import has_checksum, unseal

BATCH_ROWS: Final = 1_000  # in one snapshot: an open one keeps pages from being reused


def scrub_lmdb(folder: str) -> None:
    """Verify all rows of the environment in a folder."""
    try:
        with lmdb.open(folder, readonly=True, create=False, max_dbs=3, max_readers=512) as env:
            rows, names, state = (
                env.open_db(name, create=False) for name in (b"rows", b"names", b"state")
            )
            with env.begin(state) as txn:
                mixed = txn.get(b"mixed") is not None or txn.get(b"format") == b"1"
                entries = txn.stat(rows)["entries"]
            transaction = env.info()["last_txnid"]
            findings = Findings(entries)
            spaces = _read_spaces(env, names, findings, mixed=mixed)
            _Walk(env, rows, spaces, findings, mixed=mixed).run()
            if env.info()["last_txnid"] == transaction:  # no write meanwhile
                findings.missing = max(0, entries - findings.rows)
            findings.end()
    except (lmdb.Error, OSError) as error:
        raise DataLoss(f"the engine lmdb:{folder}", f"it cannot be read: {error}") from error


def _read_spaces(
    env: lmdb.Environment, names: lmdb._Database, findings: Findings, *, mixed: bool
) -> dict[bytes, str]:
    """Return the names of spaces by their numbers; a damaged one is a finding."""
    spaces: dict[bytes, str] = {}
    with env.begin(names) as txn, txn.cursor() as cursor:
        for key, stored in cursor:
            number = unseal(key, stored)
            if number is None and mixed and not has_checksum(stored):
                number = stored
            if number is None:
                shown = repr(key)
                findings.found_damage(shown, b"", "the number of this space is damaged")
                continue
            spaces[number] = key.decode("utf-8", "replace")
    return spaces


class _Walk:
    """One pass over the rows, a snapshot for each batch."""

    def __init__(
        self,
        env: lmdb.Environment,
        rows: lmdb._Database,
        spaces: dict[bytes, str],
        findings: Findings,
        *,
        mixed: bool,
    ) -> None:
        self._env = env
        self._rows = rows
        self._spaces = spaces
        self._findings = findings
        self._mixed = mixed
        self._before = b""  # the key that was read last

    def run(self) -> None:
        start = b"\0"
        while True:
            try:
                if not self._read_batch(start):
                    return
                start = self._before + b"\0"
            except (lmdb.Error, DataLoss) as error:
                self._findings.found_unreadable(self._space(), self._before, error)
                following = next((one for one in next_starts(self._before) if one > start), None)
                if following is None:
                    return
                start = self._before = following
            self._findings.show_progress()

    def _space(self) -> str:
        return self._spaces.get(self._before[:NUMBER_BYTES], "?")

    def _read_batch(self, start: bytes) -> bool:
        """Verify some rows; whether there may be more."""
        findings = self._findings
        with self._env.begin(self._rows) as txn, txn.cursor() as cursor:
            exists = cursor.set_range(start)
            for _ in range(BATCH_ROWS):
                if not exists:
                    return False
                key, stored = cursor.key(), cursor.value()
                if key < start or key <= self._before:
                    raise DataLoss("a page", "its keys are out of order")
                self._before = key
                if unseal(key, stored) is not None:
                    findings.verified += 1
                elif self._mixed and not has_checksum(stored):
                    findings.unverified += 1
                else:
                    findings.found_damage(self._space(), key, "its checksum does not fit")
                exists = cursor.next()
        return True
