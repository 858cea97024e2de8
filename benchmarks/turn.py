"""The memory store's lock beside the library's: take and give, with nobody else waiting.

Called from Python, where both pay for the call; inside the compiled store ours pays nothing for it.
"""

from __future__ import annotations

import threading

from benchmarks.rounds import Bars, build_of, interleaved, print_results, ratio
from sluicegate.stores.memory import turn as turn_module
from sluicegate.stores.memory.turn import Turn

CALLS = 100_000
OURS, LIBRARY = "Turn", "threading.Lock"


def main() -> None:
    """Measure, print, and judge."""
    bars = Bars()
    turn, lock = Turn(), threading.Lock()
    take, give, acquire, release = turn.take, turn.give, lock.acquire, lock.release

    def ours() -> int:
        for _ in range(CALLS):
            take()
            give()
        return CALLS

    def library() -> int:
        for _ in range(CALLS):
            acquire()
            release()
        return CALLS

    results = interleaved({OURS: ours, LIBRARY: library})
    build = build_of(turn_module.__file__)
    print_results(f"Take and give, {build}", results, OURS)
    if build == "compiled":
        times = ratio(results, LIBRARY, OURS)
        bars.check(times > 1, f"faster than {LIBRARY}: {times:.2f} x")
    bars.exit()


if __name__ == "__main__":
    main()
