"""Capture: what it costs beside an answer, and how quickly it is written and read again.

A note takes turns with a whole decision of the service, whose counts are in memory: that is what
it stands beside. Nearly all notes are of entities that are not in the sample. Those that are pile
up in the buffer while they are measured, so the garbage collector's looks at them are counted too.
Times are of the calling thread; what the capture's own thread does is measured as writing. The bars
are for the compiled build.

    python -m benchmarks.capture
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.null_gate import NullGate
from benchmarks.rounds import Bars, build_of, interleaved, print_results, ratio
from sluicegate import Limiter
from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest
from sluicegate.rules.resources.service import Checker
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.shadow.capture import recorder as hook
from sluicegate.shadow.capture.key import open_key
from sluicegate.shadow.capture.log import CaptureLog
from sluicegate.shadow.capture.reader import read_capture
from sluicegate.shadow.capture.recorder import Capture
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.shadow.query_keys import check_key, mesh_key
from sluicegate.shadow.traffic import ALL
from sluicegate.system import SystemClock, now_us
from tests.shadow.synthetic import synthetic_traffic

CALLS = 20_000
ENTITIES = 1_000
REQUESTS = 500_000
OUT_SHARE_MAX = 0.10
IN_TIMES_MAX = 2.0
RULES = '{"version": 1, "rules": [{"rule_id": "all", "limit": 1000000000, "window": "1m"}]}'


def capture_of(folder: Path, share: int) -> Capture:
    """A capture with room for all that is noted while it is measured."""
    settings = CaptureSettings(
        folder=str(folder),
        share=share,
        buffer_max=10_000_000,
        buffer_bytes_max=1 << 34,
        linger_us=60_000_000,
    )
    return Capture(settings, clock=SystemClock())


def checks(capture: Capture, asks: Sequence[CheckRequest]) -> Callable[[], int]:
    """Note each."""

    def run() -> int:
        for _ in range(CALLS // len(asks)):
            for ask in asks:
                capture.note_check(ask, 1_700_000_000_000_000, False)
        return CALLS

    return run


def meshes(capture: Capture, asks: Sequence[MeshRequest]) -> Callable[[], int]:
    """Note each."""

    def run() -> int:
        for _ in range(CALLS // len(asks)):
            for ask in asks:
                capture.note_mesh(ask, 1_700_000_000_000_000, False)
        return CALLS

    return run


def deciding(folder: Path, asks: Sequence[CheckRequest]) -> Callable[[], int]:
    """Decide each, counts in memory."""
    path = folder / "rules.yaml"
    path.write_text(RULES)
    book = ServiceRuleSet.load([path])
    limiter = Limiter()
    limiter.replace_rules(book.rules)
    checker = Checker(limiter, NullGate(), NullGate(), book=book.resources)

    def run() -> int:
        for _ in range(CALLS // len(asks)):
            for ask in asks:
                checker.check(ask, now_us())
        return CALLS

    return run


def measure_notes(folder: Path) -> Bars:
    """On the way of an answer."""
    asks = [
        CheckRequest(
            f"user-{n}", "/api/v1/playback", headers={"x-client-type": "tv", "accept": "*/*"}
        )
        for n in range(ENTITIES)
    ]
    mesh = [
        MeshRequest("shop", [Descriptor([("tenant", f"tenant-{n}"), ("path", "/search")])])
        for n in range(ENTITIES)
    ]
    out, within = capture_of(folder / "out", 1), capture_of(folder / "in", ALL)
    results = interleaved(
        {
            "a decision": deciding(folder, asks),
            "check, not in the sample": checks(out, asks),
            "check, in the sample": checks(within, asks),
            "mesh, not in the sample": meshes(out, mesh),
            "mesh, in the sample": meshes(within, mesh),
        }
    )
    print_results("A note", results, "a decision")
    stats = within.close(120_000_000)
    out.close()
    bars = Bars()
    bars.check(stats.written == stats.kept, "all that was noted was written")
    share = ratio(results, "check, not in the sample", "a decision")
    bars.check(
        share <= OUT_SHARE_MAX,
        f"not in the sample: at most {OUT_SHARE_MAX} of a decision: {share:.3f}",
    )
    times = ratio(results, "check, in the sample", "a decision")
    bars.check(
        times <= IN_TIMES_MAX, f"in the sample: at most {IN_TIMES_MAX} of a decision: {times:.2f}"
    )
    return bars


def measure_log(folder: Path) -> None:
    """Written and read, by one thread."""
    made = synthetic_traffic(REQUESTS, mesh=2_000)
    keys = [
        check_key(ask, tuple(sorted(ask.headers)))
        if isinstance(ask, CheckRequest)
        else mesh_key(ask)
        for ask in made.queries
    ]
    rows = [
        (at_us, outcome, keys[number])
        for at_us, outcome, number in zip(made.at_us, made.outcomes, made.which, strict=True)
    ]
    settings = CaptureSettings(folder=str(folder / "log"), share=ALL)
    key = open_key(settings.key_path)
    log = CaptureLog(settings, key, clock=SystemClock())
    began = time.thread_time()
    for first in range(0, len(rows), 8_192):
        log.write(rows[first : first + 8_192])
    log.close()
    wrote_s = time.thread_time() - began
    began = time.thread_time()
    read = read_capture(settings.folder, key=key)
    read_s = time.thread_time() - began
    if len(read.traffic) != REQUESTS or read.traffic.lost:
        raise AssertionError(read)
    print(f"\n{REQUESTS:,} requests, {len(made.queries):,} different asks")
    print(f"  written  {REQUESTS / wrote_s:11,.0f} a second")
    print(f"  read     {REQUESTS / read_s:11,.0f} a second")
    print(f"  on disk  {log.stats().bytes / REQUESTS:11.1f} bytes a request")


def main() -> None:
    """Measure both."""
    print(build_of(hook.__file__))
    with tempfile.TemporaryDirectory() as name:
        bars = measure_notes(Path(name))
        measure_log(Path(name))
    bars.exit()


if __name__ == "__main__":
    main()
