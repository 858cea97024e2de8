"""Worker: the process in which strangers' bytes are decoded, one job after the other.

    python -P -m sluicegate.stores.images.worker '{"memory_bytes_max":..., ...}'

It has nothing to lose: no listener, no token in its environment, no right to grow over its memory.
Before the first job it gives up files, sockets and programs too (`confinement.py`). It reads jobs
from its input, and writes answers to its output. Without its input it ends, in the middle of a job
too: the service that would kill it is gone.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import threading
from mmap import ACCESS_READ, mmap
from typing import BinaryIO

from sluicegate.contracts.image import ImageErrorKind, ImageFailure, ImageLimits
from sluicegate.contracts.image_spec import parse_spec
from sluicegate.stores.images.confinement import confine
from sluicegate.stores.images.messages import (
    WorkerMessage,
    described,
    encode_message,
    failed,
    processed,
    read_message,
)


def main() -> None:
    """Serve jobs until the input ends."""
    settings = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the service's
    _bound(settings["memory_bytes_max"])
    # A library that prints must not speak between two answers.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        from sluicegate.stores.images import vips  # noqa: PLC0415 - within the bounds

        vips.set_up()
        limits = ImageLimits(**settings["limits"])
        shared = _map(settings["shared"])
        missing = confine(settings["read"])
        threading.Thread(target=_end_with_service, daemon=True).start()  # confined too
        _send(answers, WorkerMessage({"engine": vips.engine_name(), "missing": missing}))
        while (job := read_message(sys.stdin.buffer.read)) is not None:
            _send(answers, _answer(job, limits, shared))


def _answer(job: WorkerMessage, limits: ImageLimits, shared: memoryview) -> WorkerMessage:
    from sluicegate.stores.images import vips  # noqa: PLC0415 - likewise

    try:
        data = _read(job, limits.source_bytes_max, shared)
        if job.head["spec"] is None:
            return described(vips.describe_image(data, limits))
        return processed(vips.process_image(data, parse_spec(job.head["spec"]), limits))
    except ImageFailure as failure:
        return failed(failure)
    except MemoryError:
        return failed(ImageFailure(ImageErrorKind.NO_MEMORY, "it takes more than memory_bytes_max"))
    except OSError as error:
        return WorkerMessage({"unreadable": f"{job.head.get('path')}: {error.strerror}"})


def _map(shared: tuple[int, int] | None) -> memoryview:
    """What the service hands over without a pipe, to be read where it is."""
    return memoryview(b"" if shared is None else mmap(*shared, access=ACCESS_READ))


def _read(job: WorkerMessage, bytes_max: int, shared: memoryview) -> bytes | memoryview:
    size, path = job.head.get("shared_bytes"), job.head.get("path")
    if size is not None:
        return shared[:size]
    if path is None:
        return job.body
    with open(path, "rb") as file:
        return file.read(bytes_max + 1)


def _send(answers: BinaryIO, message: WorkerMessage) -> None:
    answers.write(encode_message(message))
    answers.write(message.body)
    answers.flush()


def _end_with_service() -> None:
    """Wait for nothing but the other end of the input to be closed."""
    service = select.poll()
    service.register(0, 0)
    service.poll()
    os._exit(0)


def _bound(memory_bytes_max: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes_max, memory_bytes_max))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


if __name__ == "__main__":
    main()
