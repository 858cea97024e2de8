"""Importing: rows of a log into memory as a capture, or into a capture log on disk.

Both take a share of the entities if told to, by the same draw as a service that captures. A log on
disk is redacted like any other; one in memory is as it was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Unavailable
from sluicegate.shadow.ask_keys import AskKey, check_key, mesh_key, mesh_of
from sluicegate.shadow.capture.key import CaptureKey, open_key
from sluicegate.shadow.capture.log import CaptureLog, LogStats, Noted
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.shadow.captured import ALL, Captured
from sluicegate.shadow.entities import NO_KEYS, NOBODY, entity_of
from sluicegate.shadow.gathering import ASKS_MAX_DEFAULT, REQUESTS_MAX_DEFAULT, Gathering
from sluicegate.shadow.imports.rows import Row
from sluicegate.shadow.sampling import Sample

BATCH: Final = 8_192


def collect(
    rows: Iterable[Row],
    *,
    share: int = ALL,
    key: CaptureKey | None = None,
    mesh_keys: Sequence[str] = NO_KEYS,
    requests_max: int = REQUESTS_MAX_DEFAULT,
    asks_max: int = ASKS_MAX_DEFAULT,
) -> Captured:
    """The rows as a capture, in order of time; what is beyond a bound is counted as lost."""

    sample = Sample(key, share)
    gathering = Gathering(
        share=share, mesh_keys=mesh_keys, requests_max=requests_max, asks_max=asks_max
    )
    for ask, at_us, outcome in rows:
        entity = entity_of(ask, mesh_keys)
        if entity == NOBODY:
            gathering.lose(1)
        elif sample.holds(entity):
            if not isinstance(ask, CheckRequest):
                ask = mesh_of(mesh_key(ask))  # noqa: PLW2901 - without what carries a secret
            gathering.add(ask, at_us, outcome)
    return gathering.captured()


def store(rows: Iterable[Row], settings: CaptureSettings, *, clock: Clock) -> LogStats:
    """Write the rows into the folder of a capture, with its key, its share and its redaction.

    `Unavailable` if the disk does not take them; what was written until then stays.
    """
    key = open_key(settings.key_path)
    sample = Sample(key, settings.share)
    headers = tuple(sorted(settings.headers))
    log = CaptureLog(settings, key, clock=clock)
    batch: list[Noted] = []
    try:
        for ask, at_us, outcome in rows:
            entity = entity_of(ask, settings.mesh_keys)
            if entity == NOBODY:
                log.miss(withheld=1)
            elif sample.holds(entity):
                named: AskKey = (
                    check_key(ask, headers) if isinstance(ask, CheckRequest) else mesh_key(ask)
                )
                batch.append((at_us, outcome, named))
                if len(batch) >= BATCH:
                    _write(log, batch, settings.folder)
                    batch.clear()
        _write(log, batch, settings.folder)
    finally:
        log.close()
    return log.stats()


def _write(log: CaptureLog, batch: Sequence[Noted], folder: str) -> None:
    log.write(batch)
    trouble = log.stats().trouble
    if trouble:
        raise Unavailable(f"the capture in {folder}", trouble)
