"""Capture: records the requests of a service, for the entities of the sample.

    capture = Capture(CaptureSettings(folder="/var/lib/sluicegate/capture", share=100), clock=clock)
    capture.note_check(ask, now_us, refused)      beside each response
    capture.close()

It is on the path of each response, so it does little, waits for nothing and raises nothing. An
entity that is not in the sample costs a look-up. Of one that is, what may be kept is put into a
buffer, and a thread of its own writes it. What does not fit is counted as lost, and the file says
so. What carries a secret does not even come into the buffer.

Bounds: `buffer_max` requests and about `buffer_bytes_max` of text in the buffer, `QUERY_CHARS_MAX`
a request, `HEADER_BYTES_MAX` a header, and those of the sample and the log. Make it after a fork,
not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Event as Flag
from threading import Lock, Thread
from typing import Final, NamedTuple, final

from sluicegate.contracts.checks import CheckRequest, MeshRequest
from sluicegate.contracts.clock import Clock
from sluicegate.rules.resources.priorities import Priorities, PriorityNames
from sluicegate.shadow.capture.key import open_key
from sluicegate.shadow.capture.log import CaptureLog, Noted
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.shadow.entities import NOBODY, mesh_entity
from sluicegate.shadow.query_keys import NO_CLAIM, NO_PAIRS, QueryKey, mesh_key
from sluicegate.shadow.sampling import Sample
from sluicegate.shadow.secret_names import is_secret
from sluicegate.shadow.traffic import ADMITTED, REFUSED

GRACE_US_DEFAULT: Final = 5_000_000
QUERY_CHARS_MAX: Final = 1 << 16
# Rules name values of at most 256 characters, which UTF-8 writes in four bytes each: no rule can
# match a longer value, so the request is decided as if the header were missing.
HEADER_BYTES_MAX: Final = 1_024
_ROW_BYTES: Final = 200  # of a request in the buffer, beside its text
TAKE_MAX: Final = 8_192  # requests that the thread takes at a time


class CaptureStats(NamedTuple):
    """What became of what was noted: `kept` is the sum of `written`, `waiting`, and what was lost.

    `noted` are all requests, `kept` those of entities in the sample, `withheld` those of which a
    part carries a secret. `lost_full` are those that did not fit, `lost_disk` those that the disk
    would not take.
    """

    noted: int
    kept: int
    written: int
    waiting: int
    withheld: int
    lost_full: int
    lost_disk: int
    bytes: int
    segments: int
    failure: str

    def as_state(self) -> Mapping[str, object]:
        """As it is shown."""
        return self._asdict()


@final
class Capture:
    """The hook. The folder and the key are made if they are not there."""

    __slots__ = (
        "_broken",
        "_buffer",
        "_buffer_bytes",
        "_buffer_bytes_max",
        "_buffer_max",
        "_buffered",
        "_bytes",
        "_carrier",
        "_clock",
        "_closing",
        "_failure",
        "_headers",
        "_headers_kept",
        "_hurry_at",
        "_kept",
        "_linger_s",
        "_lock",
        "_log",
        "_lost",
        "_lost_unlogged",
        "_mesh_keys",
        "_noted",
        "_request_names",
        "_sample",
        "_wake",
        "_withheld",
        "_withheld_unlogged",
    )

    def __init__(self, settings: CaptureSettings, *, clock: Clock) -> None:
        key = open_key(settings.key_path)
        self._sample = Sample(key, settings.share)
        self._log = CaptureLog(settings, key if settings.redact else None, clock=clock, paced=True)
        self._clock = clock
        self._headers: Final = settings.headers
        self._headers_kept = tuple(sorted(settings.headers))
        self._request_names: dict[str, PriorityNames] = {}
        self._mesh_keys: Final = settings.mesh_keys
        self._buffer_max = settings.buffer_max
        self._buffer_bytes_max = settings.buffer_bytes_max
        self._linger_s = settings.linger_us / 1e6
        self._lock = Lock()
        self._wake = Flag()
        self._buffer: list[Noted] = []
        self._bytes: list[int] = []  # of each request in the buffer
        self._buffered = 0  # requests in the buffer, or on their way to the disk
        self._buffer_bytes = 0
        self._hurry_at = max(settings.buffer_max // 4, 1)
        self._noted = self._kept = self._lost = self._withheld = self._broken = 0
        self._lost_unlogged = self._withheld_unlogged = 0
        self._failure = ""
        self._closing = False
        self._carrier = Thread(target=self._run, name="sluicegate-capture", daemon=True)
        self._carrier.start()

    def follow_rules(self, rules: Iterable[Priorities]) -> None:
        """Keep the headers that the active rules read, live ones first; never a secret.

        A name of a request that a glob decides is kept as the glob: redacted, no glob matches it.
        """
        headers = set(self._headers)
        names: dict[str, PriorityNames] = {}
        for one in rules:
            headers.update(one.headers)
            names.setdefault(one.names.header, one.names)
        self._headers_kept = tuple(sorted(name for name in headers if not is_secret(name)))
        self._request_names = names

    # On the path of a response.

    def note_check(self, query: CheckRequest, now_us: int, refused: bool) -> None:
        """Have a check kept if its user is in the sample."""
        self._noted += 1
        user = query.user_id
        if not self._sample.holds(user):
            return
        path = query.resource_path
        pairs_kept = NO_PAIRS
        chars = len(user) + len(path)
        headers = query.headers
        if headers:
            pairs: list[tuple[str, str]] = []
            for name in self._headers_kept:
                value = headers.get(name)
                if value is not None and _is_short(value):
                    table = self._request_names.get(name)
                    if table is not None:
                        value = table.entry(value)
                    pairs.append((name, value))
                    chars += len(value)
            pairs_kept = tuple(pairs)
        claim = query.priority
        priority = NO_CLAIM if claim is None else int(claim)
        self._keep((user, path, query.cost, priority, pairs_kept), now_us, refused, chars)

    def note_mesh(self, query: MeshRequest, now_us: int, refused: bool) -> None:
        """Record a mesh's request if the entity of its descriptors is in the sample."""
        self._noted += 1
        entity = mesh_entity(query, self._mesh_keys)
        if entity == NOBODY:
            self._withhold()
            return
        if not self._sample.holds(entity):
            return
        key = mesh_key(query)
        descriptors = key[2]
        chars = len(key[0])
        for pairs, _, _, _ in descriptors:
            for name, value in pairs:
                chars += len(name) + len(value)
        if len(descriptors) < len(query.descriptors):
            self._withhold()
        if descriptors:
            self._keep(key, now_us, refused, chars)

    def _keep(self, key: QueryKey, now_us: int, refused: bool, chars: int) -> None:
        size = chars + _ROW_BYTES
        with self._lock:
            self._kept += 1
            full = self._buffered >= self._buffer_max
            full = full or self._buffer_bytes + size > self._buffer_bytes_max
            if full or chars > QUERY_CHARS_MAX:
                self._lost += 1
                self._lost_unlogged += 1
                return
            if self._closing:
                self._lost += 1
                return
            self._buffer.append((now_us, REFUSED if refused else ADMITTED, key))
            self._bytes.append(size)
            self._buffered += 1
            self._buffer_bytes += size
            hurry = self._buffered == self._hurry_at
        if hurry:
            self._wake.set()

    def _withhold(self) -> None:
        with self._lock:
            self._withheld += 1
            self._withheld_unlogged += 1

    # For whoever looks after it.

    def stats(self) -> CaptureStats:
        """What became of the requests so far."""
        with self._lock:
            log = self._log.stats()
            return CaptureStats(
                self._noted,
                self._kept,
                log.written,
                self._buffered,
                self._withheld,
                self._lost,
                log.lost + self._broken,
                log.bytes,
                log.segments,
                self._failure or log.failure,
            )

    def close(self, grace_us: int = GRACE_US_DEFAULT) -> CaptureStats:
        """Write what is there within a grace period, and end the segment."""
        with self._lock:
            self._closing = True
        self._wake.set()
        self._carrier.join(grace_us / 1e6)
        return self.stats()

    # The thread.

    def _run(self) -> None:
        while True:
            self._wake.wait(self._linger_s)
            self._wake.clear()
            closing = self._closing
            while self._carry():
                pass
            if closing:
                break
        try:
            self._log.close()
        except Exception as error:
            self._failure = str(error)

    def _carry(self) -> bool:
        """Write some of what waits; whether more does."""
        with self._lock:
            batch, sizes = self._buffer[:TAKE_MAX], self._bytes[:TAKE_MAX]
            del self._buffer[:TAKE_MAX]
            del self._bytes[:TAKE_MAX]
            lost, self._lost_unlogged = self._lost_unlogged, 0
            withheld, self._withheld_unlogged = self._withheld_unlogged, 0
        try:
            if lost or withheld:
                self._log.miss(lost=lost, withheld=withheld)
            if batch:
                self._log.write(batch)
            else:
                self._log.tend()
        except Exception as error:  # a bug of ours must not end the capture, nor the service
            self._failure = f"{type(error).__name__}: {error}"
            with self._lock:
                self._broken += len(batch)
        with self._lock:
            self._buffered -= len(batch)
            self._buffer_bytes -= sum(sizes)
            return bool(self._buffer)


def _is_short(value: str) -> bool:
    """Whether a header's value is within `HEADER_BYTES_MAX`."""
    if len(value) > HEADER_BYTES_MAX:
        return False
    return value.isascii() or len(value.encode("utf-8", "surrogatepass")) <= HEADER_BYTES_MAX
