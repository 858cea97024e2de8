"""A program as a user has it: it asks the glass over and over, and says when the answer changes.

Run by tests as a process of its own, with the source's URL as its argument. Every line says what
lets `ann` through `login`, or that nothing does; what the log says comes on standard error.
"""

from __future__ import annotations

import logging
import sys
import time

from sluicegate.limits.glass.break_glass import Glass
from sluicegate.limits.glass.follower import GlassFollower
from sluicegate.limits.glass.sources import open_source
from sluicegate.system import now_us


def main(url: str) -> None:
    logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
    glass = Glass()
    with GlassFollower(open_source(url), glass) as follower:
        while not follower.reached:
            time.sleep(0.005)
        value = ""
        while True:
            opening = None
            if glass.broken:
                opening = glass.opening_for("login", "ann", now_us())
            say = "whole" if opening is None else f"open {opening.id} {opening.by} {opening.why}"
            if say != value:
                sys.stdout.write(f"{say}\n")
                sys.stdout.flush()
                value = say
            time.sleep(0.005)


if __name__ == "__main__":
    main(sys.argv[1])
