"""A writing child: appends, and says on standard output what was acknowledged; it is killed."""

from __future__ import annotations

import sys
from collections import deque
from concurrent.futures import Future

from sluicegate.stores.event_logs import open_log

UNDER_WAY_MAX = 500


def main(url: str, name: str) -> None:
    log = open_log(url)
    under_way: deque[tuple[int, Future[int]]] = deque()
    number = 0
    while True:
        body = f"{name} {number} ".encode() + b"x" * (number * 37 % 900)
        under_way.append((number, log.append("news", body, number)))
        number += 1
        if len(under_way) >= UNDER_WAY_MAX:
            done, promise = under_way.popleft()
            sys.stdout.write(f"{promise.result(60)} {name} {done}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
