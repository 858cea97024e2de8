"""A process of the tests: commits on a repository until it is told to stop, or is killed.

python writer.py PATH NAME COUNT       one commit a number, each adding a file and a note
python writer.py PATH NAME COUNT AT    the same, killed by itself before its AT-th system call
                                       that changes a file
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sluicegate.contracts.errors import Conflict
from sluicegate.contracts.rulebook import Author
from sluicegate.rules.repository.repository import Repository

MAIN = "refs/heads/main"
AT_US = 1_700_000_000_000_000
CALLS = ("open", "mkdir", "fsync", "rename", "link", "unlink", "utime", "rmdir")


def die_before(number: int) -> None:
    """Kill this process before its n-th call of those that change files."""
    left = number

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return call(*arguments, **named)

        return made

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def add(repository: Repository, name: str) -> str:
    """A commit with one more file, however often somebody else is faster."""
    author = Author(name.partition("-")[0], "writer@example.org")
    while True:
        tip = repository.tip(MAIN)
        assert tip is not None
        made = repository.write(
            {f"{name}.yaml": name.encode()},
            parents=[tip],
            author=author,
            message=f"Add {name}",
            at_us=AT_US,
        )
        try:
            repository.move(MAIN, made.id, expected=tip)
        except Conflict:
            continue
        return made.id


def tell(line: str) -> None:
    """Say a line to whoever started this."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Write as often as told, and tell each commit once it is safe."""
    path, name, count, *rest = sys.argv[1:]
    repository = Repository.open(path)
    tell("ready")
    sys.stdin.readline()
    if rest:
        die_before(int(rest[0]))
    for number in range(int(count)):
        tell(f"{name}-{number} {add(repository, f'{name}-{number}')}")


if __name__ == "__main__":
    main()
