"""A child that kills itself at every step: before each call that changes or syncs anything.

For each kind of write it first runs once to the end, and so learns which calls there are; then,
for each of them, it forks a process that is gone by SIGKILL just before that call, or in the middle
of what is written. Everything is left lying as it fell, a folder each, and told on standard output.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sluicegate.contracts.blob_store import BlobStore
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.blobs.names import tag_of

NAME = "orders/current.json"
OLD, NEW = b"old " * 1_000, b"new " * 3_000
STEPS = (
    "open",
    "write",
    "fsync",
    "close",
    "link",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
    "chmod",
    "fchmod",
)
KINDS: dict[str, tuple[bool, Callable[[BlobStore], object]]] = {
    # Whether there is an old one, and what is done.
    "the first put of all": (False, lambda blobs: blobs.put(NAME, NEW)),
    "a put if absent": (False, lambda blobs: blobs.put(NAME, NEW, if_absent=True)),
    "a put over the old": (True, lambda blobs: blobs.put(NAME, NEW)),
    "a put by tag": (True, lambda blobs: blobs.put(NAME, NEW, if_tag=tag_of(OLD))),
    "a delete": (True, lambda blobs: blobs.delete(NAME)),
}


def main(root: str) -> None:
    for number, (kind, (before, act)) in enumerate(KINDS.items()):
        calls = _fork(f"{root}/{number}-whole", before, act, None)
        _tell(kind, f"{root}/{number}-whole", calls, None)
        for at, call in enumerate(calls):
            for half in (False, True) if call == "write" else (False,):
                folder = f"{root}/{number}-{at}-{half}"
                describe = _fork(folder, before, act, (at, half))
                assert describe == calls[: at + 1], (kind, describe, calls)
                _tell(kind, folder, calls, at)


def _tell(kind: str, folder: str, calls: list[str], at: int | None) -> None:
    sys.stdout.write(json.dumps({"kind": kind, "folder": folder, "calls": calls, "at": at}) + "\n")


def _fork(
    folder: str,
    before: bool,
    act: Callable[[BlobStore], object],
    end: tuple[int, bool] | None,
) -> list[str]:
    """The calls that were begun."""
    if before:
        open_blobs("files:" + folder).put(NAME, OLD)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        _watch(write, end)
        act(open_blobs("files:" + folder))
        os._exit(0)
    os.close(write)
    with open(read, encoding="ascii") as pipe:
        calls = pipe.read().split()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == (0 if end is None else -signal.SIGKILL)
    return calls


def _watch(pipe: int, end: tuple[int, bool] | None) -> None:
    tell, count = os.write, 0

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            tell(pipe, f"{name} ".encode())
            if end is not None and count == end[0]:
                if end[1]:
                    real(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            return real(*args, **kwargs)

        return call

    for name in STEPS:
        setattr(os, name, watched(name, getattr(os, name)))
    fcntl.flock = watched("flock", fcntl.flock)


if __name__ == "__main__":
    main(sys.argv[1])
