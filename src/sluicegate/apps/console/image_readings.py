"""Image readings: what an image service did between the last two looks at it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sluicegate.command_line.board_rates import per_s

State = Mapping[str, Any]
# Each map: the counts of what was found in it, and of all that was looked for. What is served from
# memory asks no map.
MAPS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "URL": ("fresh", ("requests",)),
    "content": ("duplicates", ("downloads", "uploads")),
    "variant": ("variant_hits", ("variant_hits", "processed")),
}


class MapReading(NamedTuple):
    """One of the three maps: looked for and found, a second and since the start."""

    name: str
    asked: float
    found: float
    asked_ever: int
    found_ever: int

    @property
    def ratio(self) -> float | None:
        """Of what is looked for now, the share that is found; None where nothing is."""
        return self.found / self.asked if self.asked else None

    @property
    def ratio_ever(self) -> float | None:
        """The same since the start."""
        return self.found_ever / self.asked_ever if self.asked_ever else None


class FailureReading(NamedTuple):
    """Failures of a kind."""

    kind: str
    rate: float
    ever: int


class ImageReading(NamedTuple):
    """An image service; rates are a second, sizes bytes since the start unless said."""

    node: str
    from_memory: float
    requests: float  # besides those
    maps: tuple[MapReading, ...]
    failures: tuple[FailureReading, ...]
    refused: float
    busy: int
    places: int
    queued: int
    alive: int
    workers: int
    replaced: int
    process_us: float | None  # the mean of those that ended
    downloaded_bytes: int
    written_bytes: int
    saved_bytes: int
    saved_us: int
    memory_bytes: int  # of variants, now
    damaged: int
    unwell: tuple[tuple[str, str], ...]  # origins whose breaker is not closed, and its state

    @property
    def admitted(self) -> float:
        """What was asked for and not refused, from memory included."""
        return max(0.0, self.from_memory + self.requests - self.refused)


def read_images(url: str, before: State | None, state: State) -> ImageReading:
    """Return what there is to see of a service of images."""
    counts, queue, workers = state["pipeline"], state["queue"], state["workers"]
    storage, hot = state["storage"], state["hot"]
    old = {} if before is None else before["pipeline"]
    old_failed = old.get("failed", {})

    def rate(of: Mapping[str, Any], since: Mapping[str, Any], name: str) -> float:
        return per_s(before, state, int(since.get(name, 0)), int(of[name]))

    maps = [
        MapReading(
            name,
            sum(rate(counts, old, one) for one in asked),
            rate(counts, old, found),
            sum(int(counts[one]) for one in asked),
            int(counts[found]),
        )
        for name, (found, asked) in MAPS.items()
    ]
    failures = [
        FailureReading(str(kind), rate(counts["failed"], old_failed, kind), int(ever))
        for kind, ever in counts["failed"].items()
        if ever
    ]
    old_queue = {} if before is None else before["queue"]
    processed = rate(counts, old, "processed")
    return ImageReading(
        url,
        from_memory=rate(hot, {} if before is None else before["hot"], "hits"),
        requests=rate(counts, old, "requests"),
        maps=tuple(maps),
        failures=tuple(sorted(failures, key=lambda one: (-one.rate, -one.ever, one.kind))),
        refused=rate(queue, old_queue, "refused"),
        busy=int(queue["inflight"]),
        places=int(queue["places"]),
        queued=int(queue["queued"]),
        alive=int(workers["alive"]),
        workers=int(workers["workers"]),
        replaced=int(workers["replaced"]),
        process_us=rate(counts, old, "process_us") / processed if processed else None,
        downloaded_bytes=int(storage["downloaded_bytes"]),
        written_bytes=int(storage["written_bytes"]),
        saved_bytes=int(counts["saved_bytes"]),
        saved_us=int(counts["saved_us"]),
        memory_bytes=int(hot["bytes"]),
        damaged=int(storage["damaged"]),
        unwell=tuple(
            (str(host), str(one)) for host, one in state["origins"].items() if one != "closed"
        ),
    )
