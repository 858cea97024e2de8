"""Importing: rows of a log into memory as a capture, or into a capture log on disk.

Both can take a share of the entities, by the same draw as a service that captures. A log on
disk is redacted like any other; one in memory is as it was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Unavailable
from sluicegate.shadow.capture.key import CaptureKey, open_key
from sluicegate.shadow.capture.log import CaptureLog, LogStats, Noted
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.shadow.entities import NO_KEYS, NOBODY, entity_of
from sluicegate.shadow.imports.rows import ImportRow
from sluicegate.shadow.query_keys import QueryKey, check_key, mesh_key, mesh_of
from sluicegate.shadow.sampling import Sample
from sluicegate.shadow.traffic import (
    ALL,
    QUERIES_MAX_DEFAULT,
    REQUESTS_MAX_DEFAULT,
    CapturedTraffic,
    TrafficBuilder,
)

BATCH: Final = 8_192


def collect(
    rows: Iterable[ImportRow],
    *,
    share: int = ALL,
    key: CaptureKey | None = None,
    mesh_keys: Sequence[str] = NO_KEYS,
    requests_max: int = REQUESTS_MAX_DEFAULT,
    queries_max: int = QUERIES_MAX_DEFAULT,
) -> CapturedTraffic:
    """The rows as a capture, in order of time; what is beyond a bound is counted as lost."""

    sample = Sample(key, share)
    builder = TrafficBuilder(
        share=share, mesh_keys=mesh_keys, requests_max=requests_max, queries_max=queries_max
    )
    for query, at_us, outcome in rows:
        entity = entity_of(query, mesh_keys)
        if entity == NOBODY:
            builder.lose(1)
        elif sample.holds(entity):
            if not isinstance(query, CheckRequest):
                query = mesh_of(mesh_key(query))  # noqa: PLW2901 - without what carries a secret
            builder.add(query, at_us, outcome)
    return builder.build()


def store(rows: Iterable[ImportRow], settings: CaptureSettings, *, clock: Clock) -> LogStats:
    """Write the rows into the folder of a capture, with its key, its share and its redaction.

    `Unavailable` if the disk does not take them; what was written until then stays.
    """
    key = open_key(settings.key_path)
    sample = Sample(key, settings.share)
    headers = tuple(sorted(settings.headers))
    log = CaptureLog(settings, key, clock=clock)
    batch: list[Noted] = []
    try:
        for query, at_us, outcome in rows:
            entity = entity_of(query, settings.mesh_keys)
            if entity == NOBODY:
                log.miss(withheld=1)
            elif sample.holds(entity):
                key_of_query: QueryKey = (
                    check_key(query, headers)
                    if isinstance(query, CheckRequest)
                    else mesh_key(query)
                )
                batch.append((at_us, outcome, key_of_query))
                if len(batch) >= BATCH:
                    _write(log, batch, settings.folder)
                    batch.clear()
        _write(log, batch, settings.folder)
    finally:
        log.close()
    return log.stats()


def _write(log: CaptureLog, batch: Sequence[Noted], folder: str) -> None:
    log.write(batch)
    failure = log.stats().failure
    if failure:
        raise Unavailable(f"the capture in {folder}", failure)
