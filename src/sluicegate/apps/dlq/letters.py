"""Letters: reads logs of dead letters from their beginning to their end, and on if asked.

Dead letters are told from marks and from other events; damage is reported on standard error and
never ends a reading by itself. A log that is silent for longer than `--patience` is unavailable.
What the verbs do for each user and rule in a store is here too.
"""

from __future__ import annotations

import asyncio
import re
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.event_log import Damage, Event, EventLog, Reader
from sluicegate.contracts.store import Store
from sluicegate.limits.dead_letter import (
    BEGUN,
    CLOSED,
    DEAD_LETTER,
    DeadLetter,
    ProcessMark,
    unpack,
    unpack_mark,
)
from sluicegate.limits.late_charges import CountingPlace, PlaceStatus
from sluicegate.limits.stores import open_stores
from sluicegate.stores.event_logs import open_log
from sluicegate.stores.files.segments import bases
from sluicegate.stores.files.settings import SCHEME, parse_url
from sluicegate.system import now_us

EVENTS_AT_ONCE: Final = 1_000
WAIT_US: Final = 250_000
STORE_TIMEOUT_MS: Final = 2_000
PLACES_AT_ONCE: Final = 8  # in a store
PLACES_BETWEEN_LINES: Final = 1_000  # of progress
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|min|h|d)", re.ASCII)
_UNIT_US: Final = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


def span_us(flag: str, text: str) -> int:
    """Return the microseconds that `90s`, `10m`, `2h` or `7d` are."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise BadValue(flag, text, "give a time as 90s, 10m, 2h or 7d")
    return int(float(found[1]) * _UNIT_US[found[2]])


def since_us(arguments: Namespace) -> int:
    """From which instant on; 0 is from the beginning."""
    if arguments.since is None:
        return 0
    return max(now_us() - span_us("--since", arguments.since), 0)


def read(arguments: Namespace) -> Iterator[DeadLetter | ProcessMark]:
    """Return everything in the logs, one after the other, to the end of each."""
    patience_us = span_us("--patience", arguments.patience)
    for url in _each(arguments.urls):
        with closing(open_log(url)) as log, closing(log.reader()) as reader:
            for events in _to_the_end(reader, url, patience_us):
                for event in events:
                    one = parse_event(event)
                    if one is not None:
                        yield one
            print_damage(reader.damage)


def follow(arguments: Namespace) -> Iterator[DeadLetter | ProcessMark | None]:
    """Return what is in the logs and then what comes, until somebody stops; None is a pause."""
    logs: list[EventLog] = []
    readers: list[Reader] = []
    urls = _each(arguments.urls)
    printed = [0] * len(urls)
    try:
        for url in urls:
            logs.append(open_log(url))
            readers.append(logs[-1].reader())
        while True:
            for place, reader in enumerate(readers):
                for event in reader.read(EVENTS_AT_ONCE, WAIT_US // len(readers)):
                    one = parse_event(event)
                    if one is not None:
                        yield one
                print_damage(reader.damage[printed[place] :])
                printed[place] = len(reader.damage)
            yield None
    finally:
        for reader in readers:
            reader.close()
        for log in logs:
            log.close()


def _each(urls: Sequence[str]) -> list[str]:
    """Return the logs of these URLs: a folder without a log of its own stands for those within."""
    found: list[str] = []
    for url in urls:
        within: list[str] = []
        if url.startswith(SCHEME):
            folder = Path(parse_url(url).folder)
            if not folder.is_dir():  # a slip of the pen must not read as a log without letters
                raise Unavailable(f"the event log {SCHEME}{folder}", "there is no such folder")
            query = url.partition("?")[2]
            if folder.is_dir() and not bases(str(folder)):
                within = [
                    f"{SCHEME}{quote(str(sub))}{'?' if query else ''}{query}"
                    for sub in sorted(folder.iterdir())
                    if sub.is_dir() and bases(str(sub))
                ]
        found += within or [url]
    return found


def _to_the_end(reader: Reader, url: str, patience_us: int) -> Iterator[Sequence[Event]]:
    silent_us = 0
    while True:
        events = reader.read(EVENTS_AT_ONCE, 0)
        if not events and not reader.at_end:
            events = reader.read(EVENTS_AT_ONCE, WAIT_US)
        if events:
            silent_us = 0
            yield events
        elif reader.at_end:
            return
        else:
            silent_us += WAIT_US
            if silent_us >= patience_us:
                reason = f"it said nothing for {patience_us / 1e6:g} s"
                raise Unavailable(
                    f"the event log {url.partition('?')[0].rpartition('@')[2]}", reason
                )


def parse_event(event: Event) -> DeadLetter | ProcessMark | None:
    """Return the letter or mark that an event is; None if it is another's."""
    one: DeadLetter | ProcessMark | str
    if event.kind == DEAD_LETTER:
        one = unpack(event.body)
    elif event.kind in {BEGUN, CLOSED}:
        one = unpack_mark(event.kind, event.body, event.at_us)
    else:
        return None
    if isinstance(one, str):
        warn(f"event {event.offset} is passed over: {one}")
        return None
    return one


async def for_each_place(
    arguments: Namespace,
    places: Sequence[tuple[CountingPlace, Sequence[DeadLetter]]],
    work: Callable[[Store, CountingPlace, Sequence[DeadLetter]], Awaitable[PlaceStatus]],
) -> list[PlaceStatus]:
    """Do `work` for every place, some at once, in the store of `--store`; print the progress."""
    stores = open_stores(with_timeout(arguments.store), arguments.prefix)
    statuses: list[PlaceStatus] = []
    try:
        store = stores.here()
        for first in range(0, len(places), PLACES_AT_ONCE):
            some = places[first : first + PLACES_AT_ONCE]
            statuses += await asyncio.gather(*(work(store, *one) for one in some))
            if first and first % PLACES_BETWEEN_LINES == 0:
                warn(f"{first:,} of {len(places):,} places")
        return statuses
    finally:
        await stores.aclose()


def with_timeout(store_url: str) -> str:
    """The store's URL with more time for a call than a decision has, unless it says how much."""
    if "redis" not in store_url.partition("://")[0] or "timeout" in store_url.partition("?")[2]:
        return store_url
    return f"{store_url}{'&' if '?' in store_url else '?'}timeout_ms={STORE_TIMEOUT_MS}"


def print_damage(damage: Sequence[Damage]) -> None:
    """Say what could not be read."""
    for one in damage:
        warn(f"damaged: {one}")


def warn(sentence: str) -> None:
    """One line for people, beside what is printed."""
    sys.stderr.write(f"sluicegate: {sentence}\n")
