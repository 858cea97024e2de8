"""The memory store's lock beside the library's: acquire and release, uncontended.

Called from Python, where both pay for the call; inside the compiled store ours pays nothing for it.
"""

from __future__ import annotations

import threading

from benchmarks.rounds import Bars, build_of, interleaved, print_results, ratio
from sluicegate.stores.memory import light_lock
from sluicegate.stores.memory.light_lock import LightLock

CALLS = 100_000
OURS, LIBRARY = "LightLock", "threading.Lock"


def main() -> None:
    """Measure, print, and judge."""
    bars = Bars()
    lock, library_lock = LightLock(), threading.Lock()
    acquire, release = lock.acquire, lock.release
    library_acquire, library_release = library_lock.acquire, library_lock.release

    def ours() -> int:
        for _ in range(CALLS):
            acquire()
            release()
        return CALLS

    def library() -> int:
        for _ in range(CALLS):
            library_acquire()
            library_release()
        return CALLS

    results = interleaved({OURS: ours, LIBRARY: library})
    build = build_of(light_lock.__file__)
    print_results(f"Acquire and release, {build}", results, OURS)
    if build == "compiled":
        times = ratio(results, LIBRARY, OURS)
        bars.check(times > 1, f"faster than {LIBRARY}: {times:.2f} x")
    bars.exit()


if __name__ == "__main__":
    main()
