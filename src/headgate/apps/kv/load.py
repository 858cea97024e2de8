"""`headgate kv load TABLE FILE...`: many rows into a table, beside live traffic, visible at once.

The input is read as a stream and cut into parts; several are on their way at once. What is killed
or interrupted goes on where it stood when the same command is run again, from any machine: parts
that are kept are not sent again. At the end the dispatcher checks that all is there, and makes it
visible.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from hashlib import blake2b, sha256
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, BinaryIO, Final, final

from headgate.apps.kv.load_link import Link, Stopped, Target
from headgate.apps.kv.load_parts import LoadPart, parts_of
from headgate.apps.kv.load_progress import Progress
from headgate.apps.kv.load_rows import FORMS, form_of, rows_in
from headgate.contracts.errors import BadValue, HeadgateError

AT_DEFAULT: Final = "http://127.0.0.1:7080"
TOKEN_VARIABLE: Final = "HEADGATE_TOKEN"
PART_ROWS_DEFAULT: Final = 10_000
PART_BYTES_DEFAULT: Final = 1 << 20
AT_ONCE_DEFAULT: Final = 4
PATIENCE_S_DEFAULT: Final = 120.0
_STDIN: Final = "-"
_WAIT_S: Final = 0.1

EXAMPLES: Final = f"""\
examples:
  headgate kv load listings rows.csv                 a header: partition,sort,value,ttl
  headgate kv load listings a.jsonl b.jsonl --mode replace
  zcat rows.tsv.gz | headgate kv load listings - --format tsv --name monday
  {TOKEN_VARIABLE}=... headgate kv load listings rows.csv --at https://kv.internal:7080 --ca ca.pem

Interrupted or killed, it goes on where it stood when the same command is run again.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("table", metavar="TABLE", help="the table to load into")
    parser.add_argument("files", metavar="FILE", nargs="+", help="files in this order; - is stdin")
    parser.add_argument(
        "--mode",
        choices=("merge", "replace"),
        default="merge",
        help="into what is there, or in place of it (default merge)",
    )
    parser.add_argument(
        "--name", default="", help="of the upload (default: by the files' names and sizes)"
    )
    parser.add_argument(
        "--format", choices=("auto", *FORMS), default="auto", help="(default: by the file's name)"
    )
    parser.add_argument(
        "--base64", action="store_true", help="partition, sort and value are base64 of bytes"
    )
    parser.add_argument(
        "--at", "--url", default=AT_DEFAULT, metavar="URL", help=f"(default {AT_DEFAULT})"
    )
    parser.add_argument("--ca", default="", metavar="FILE", help="authorities to trust, PEM")
    parser.add_argument(
        "--token", default="", help=f"with bulk on the table; better in {TOKEN_VARIABLE}"
    )
    parser.add_argument(
        "--at-once", type=int, default=AT_ONCE_DEFAULT, metavar="N", help="parts on their way"
    )
    parser.add_argument(
        "--part-rows", type=int, default=PART_ROWS_DEFAULT, metavar="N", help="rows of a part"
    )
    parser.add_argument(
        "--part-bytes", type=int, default=PART_BYTES_DEFAULT, metavar="N", help="and its bytes"
    )
    parser.add_argument(
        "--patience-s",
        type=float,
        default=PATIENCE_S_DEFAULT,
        metavar="S",
        help=f"how long a part is tried again (default {PATIENCE_S_DEFAULT:.0f})",
    )
    parser.add_argument("--quiet", action="store_true", help="say only how it ended")


def run(arguments: Namespace) -> int:
    """Load, and tell."""
    _check(arguments)
    name = arguments.name or name_of(arguments)
    token = arguments.token or os.environ.get(TOKEN_VARIABLE, "")
    target = Target(arguments.at, arguments.ca, token, arguments.table, name)
    progress = Progress(sys.stderr, _total(arguments.files), quiet=arguments.quiet)
    load = Load(target, progress, arguments)
    try:
        said = load.run()
    except (KeyboardInterrupt, HeadgateError):
        if load.begun:
            progress.end(
                f"{progress.kept_rows + progress.passed_rows:,} rows are kept, and none can be "
                "seen yet; run the same command again to go on"
                + ("" if arguments.name else f" (--name {name})")
            )
        raise
    progress.end(
        f"{said['rows']:,} rows in {said['parts']:,} parts are in {arguments.table} "
        f"({progress.kept_rows:,} of this run, {progress.rate():,.0f}/s); upload {name}"
    )
    return 0


@final
class Load:
    """One run of an upload."""

    def __init__(self, target: Target, progress: Progress, arguments: Namespace) -> None:
        self._target = target
        self._progress = progress
        self._arguments = arguments
        self._stop = Event()
        self._failed: list[BaseException] = []
        self._queue: Queue[LoadPart | None] = Queue(2 * arguments.at_once)
        self.begun = False

    def run(self) -> dict[str, Any]:
        """Send what is not kept yet, and commit all."""
        link = self._link()
        workers: list[Thread] = []
        try:
            there = link.begin(self._arguments.mode)
            self.begun = True
            kept = frozenset(there["parts"])
            ended = there["state"] != "open"
            for _ in range(0 if ended else self._arguments.at_once):
                worker = Thread(target=self._work, daemon=True)
                worker.start()
                workers.append(worker)
            digest, count, rows = sha256(), 0, 0
            for part in self._parts():
                digest.update(part.sha256)
                count, rows = part.number + 1, rows + part.rows
                if part.number in kept or ended:
                    self._progress.passed_rows += part.rows
                    self._progress.tick()
                else:
                    self._put(part)
            for _ in workers:
                self._put(None)
            for worker in workers:
                while worker.is_alive():  # an endless join would not hear of Ctrl-C everywhere
                    worker.join(_WAIT_S)
            self._raise_failed()
            link.commit(count, rows, digest.digest())
            said = link.show()
            if said["rows"] != rows or len(said["parts"]) != count:
                seen = f"{said['rows']:,} rows in {len(said['parts']):,} parts"
                raise HeadgateError(f"the dispatcher tells of {seen}; {rows:,} were sent")
            return {"rows": rows, "parts": count}
        finally:
            self._stop.set()
            for worker in workers:
                worker.join(_WAIT_S)
            link.close()

    def _link(self) -> Link:
        patience_s = self._arguments.patience_s
        return Link(self._target, patience_s, self._stop, self._progress.waited)

    def _parts(self) -> Iterator[LoadPart]:
        arguments = self._arguments
        return parts_of(self._rows(), rows_max=arguments.part_rows, bytes_max=arguments.part_bytes)

    def _rows(self) -> Iterator[bytes]:
        arguments = self._arguments
        passed = 0
        for path in arguments.files:
            form = form_of(path, arguments.format)
            with _opened(path) as file:
                for number, row in enumerate(rows_in(file, path, form, base64=arguments.base64)):
                    if number % 1_000 == 0:
                        self._progress.read_bytes = passed + _position(file, path)
                    yield row
            passed += _size(path)
            self._progress.read_bytes = passed

    def _put(self, part: LoadPart | None) -> None:
        while True:
            self._raise_failed()
            try:
                self._queue.put(part, timeout=_WAIT_S)
            except Full:
                self._progress.tick()
            else:
                return

    def _work(self) -> None:
        link = self._link()
        try:
            while not self._stop.is_set():
                try:
                    part = self._queue.get(timeout=_WAIT_S)
                except Empty:
                    continue
                if part is None:
                    return
                link.send(part)
                self._progress.kept(part.rows)
        except Stopped:
            pass
        except BaseException as error:  # told by the thread that waits for us
            self._failed.append(error)
            self._stop.set()
        finally:
            link.close()

    def _raise_failed(self) -> None:
        if self._failed:
            raise self._failed[0]


def name_of(arguments: Namespace) -> str:
    """A name that the same command makes again: of the files, and of how they are cut."""
    if _STDIN in arguments.files:
        raise BadValue("--name", "", "a stream has no name of its own; say one, to go on by it")
    said = [
        arguments.table,
        arguments.mode,
        arguments.format,
        str(arguments.base64),
        str(arguments.part_rows),
        str(arguments.part_bytes),
        *[f"{Path(path).name}:{_size(path)}" for path in arguments.files],
    ]
    return f"load-{blake2b('|'.join(said).encode(), digest_size=8).hexdigest()}"


def _check(arguments: Namespace) -> None:
    for flag, least, most in (
        ("at_once", 1, 64),
        ("part_rows", 1, 100_000),
        ("part_bytes", 64, 16 << 20),
    ):
        value = getattr(arguments, flag)
        if not least <= value <= most:
            name = f"--{flag.replace('_', '-')}"
            raise BadValue(name, value, f"give a number from {least} to {most:,}")
    if not arguments.patience_s >= 0:
        raise BadValue("--patience-s", arguments.patience_s, "give seconds, 0 or more")
    if arguments.files.count(_STDIN) > 1:
        raise BadValue("FILE", _STDIN, "stdin can be read once")
    for path in arguments.files:
        form_of(path, arguments.format)
        if path != _STDIN:
            _opened(path).close()


def _opened(path: str) -> BinaryIO:
    if path == _STDIN:
        return sys.stdin.buffer
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise BadValue("FILE", path, f"it cannot be read: {error.strerror}") from None


def _size(path: str) -> int:
    return 0 if path == _STDIN else Path(path).stat().st_size


def _total(paths: list[str]) -> int:
    """The bytes of all; 0 if they cannot be known."""
    return 0 if _STDIN in paths else sum(map(_size, paths))


def _position(file: BinaryIO, path: str) -> int:
    if path == _STDIN or file.closed:
        return 0
    try:
        return os.lseek(file.fileno(), 0, os.SEEK_CUR)
    except OSError:
        return 0  # a pipe by a name
