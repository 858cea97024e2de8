"""`headgate kv load TABLE FILE...`: many rows into a table, beside live traffic, visible at once.

The input is read as a stream and cut into parts; several are on their way at once. What is killed
or interrupted goes on where it stood when the same command is run again, from any machine: parts
that are kept are not sent again. At the end the dispatcher checks that all is there, and makes it
visible. An upload is named by a digest of what it loads, so input that changed is another upload.
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
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias, final

from headgate.apps.kv.load_link import Answered, Link, Stopped, Target
from headgate.apps.kv.load_parts import LoadPart, parts_of
from headgate.apps.kv.load_progress import Progress
from headgate.apps.kv.load_rows import FORMS, form_of, rows_in
from headgate.apps.kv.where import AT_DEFAULT, add_where, where_of
from headgate.asking import TOKEN_VARIABLE
from headgate.contracts.errors import BadValue, HeadgateError
from headgate.limits.glass_page import instant_text

PART_ROWS_DEFAULT: Final = 10_000
PART_BYTES_DEFAULT: Final = 1 << 20
AT_ONCE_DEFAULT: Final = 4
PATIENCE_S_DEFAULT: Final = 120.0
_STDIN: Final = "-"
_NOT_THIS: Final = frozenset({400, 409, 412, 422})  # kept already, and it is something else
_DIGEST_PIECE_BYTES: Final = 1 << 20
_WAIT_S: Final = 0.1
_CONFLICT: Final = 409
Stamp: TypeAlias = tuple[int, int, int]  # of a file: its inode, size and last write

EXAMPLES: Final = f"""\
examples:
  headgate kv load listings rows.csv                 a header: partition,sort,value,ttl
  headgate kv load listings a.jsonl b.jsonl --mode replace
  zcat rows.tsv.gz | headgate kv load listings - --format tsv --name monday
  {TOKEN_VARIABLE}=... headgate kv load listings rows.csv --at https://kv.internal:7080 --ca ca.pem
  headgate kv load listings --name monday --abandon    forget an upload that is open

Interrupted or killed, it goes on where it stood when the same command is run again.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("table", metavar="TABLE", help="the table to load into")
    parser.add_argument("files", metavar="FILE", nargs="*", help="files in this order; - is stdin")
    parser.add_argument(
        "--mode",
        choices=("merge", "replace"),
        default="merge",
        help="into what is there, or in place of it (default merge)",
    )
    parser.add_argument(
        "--name", default="", help="of the upload (default: a digest of what is loaded)"
    )
    parser.add_argument(
        "--abandon", action="store_true", help="forget the open upload of these files or this name"
    )
    parser.add_argument(
        "--format", choices=("auto", *FORMS), default="auto", help="(default: by the file's name)"
    )
    parser.add_argument(
        "--base64", action="store_true", help="partition, sort and value are base64 of bytes"
    )
    add_where(parser, "with bulk on the table")
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
    stamps = [] if arguments.name else list(map(_stamp, arguments.files))
    name = arguments.name or name_of(arguments)
    target = Target(where_of(arguments), arguments.table, name)
    progress = Progress(sys.stderr, _total(arguments.files), quiet=arguments.quiet)
    if arguments.abandon:
        _abandon(target, progress, arguments)
        return 0
    load = Load(target, progress, arguments, stamps)
    try:
        loaded = load.run()
    except Changed:
        raise
    except (KeyboardInterrupt, HeadgateError):
        if load.begun:
            progress.end(
                f"{progress.kept_rows + progress.passed_rows:,} rows are kept, and none can be "
                "seen yet; run the same command again to go on"
                + ("" if arguments.name else f" (--name {name})")
            )
        raise
    held = f"{loaded.rows:,} rows in {loaded.parts:,} parts"
    if loaded.before:
        progress.end(
            f"nothing to do: {name} was loaded before, {loaded.before}, with {held}; this run "
            f"loaded none. To load the same rows into {arguments.table} again, give another --name"
        )
    else:
        progress.end(
            f"{held} are in {arguments.table} "
            f"({progress.kept_rows:,} of this run, {progress.rate():,.0f}/s); upload {name}"
        )
    return 0


def _abandon(target: Target, progress: Progress, arguments: Namespace) -> None:
    link = Link(target, arguments.patience_s, Event(), progress.waited)
    try:
        link.abandon()
    finally:
        link.close()
    progress.end(f"upload {target.name} into {target.table} is abandoned; none of it can be seen")


class Changed(HeadgateError):  # noqa: N818 - it names the thing, as in contracts.errors
    """The input is not what it was; to go on with it makes no sense."""


class Loaded(NamedTuple):
    """What is in the table now. `before` tells of an earlier run, if that one loaded it."""

    rows: int
    parts: int
    before: str


@final
class Load:
    """One run of an upload."""

    def __init__(
        self, target: Target, progress: Progress, arguments: Namespace, stamps: list[Stamp]
    ) -> None:
        self._target = target
        self._stamps = stamps  # of the files, before they were read for their name
        self._progress = progress
        self._arguments = arguments
        self._stop = Event()
        self._failed: list[BaseException] = []
        self._queue: Queue[LoadPart | None] = Queue(2 * arguments.at_once)
        self.begun = False

    def run(self) -> Loaded:
        """Send what is not kept yet, and commit all."""
        link = self._link()
        workers: list[Thread] = []
        try:
            there = self._begin(link)
            kept = frozenset(there["parts"])
            ended = there["state"] != "open"
            self.begun = not ended
            for _ in range(0 if ended else self._arguments.at_once):
                worker = Thread(target=self._work, daemon=True)
                worker.start()
                workers.append(worker)
            digest, count, rows = sha256(), 0, 0
            for part in self._parts():
                digest.update(part.sha256)
                count, rows = part.number + 1, rows + part.rows
                if not ended and part.number not in kept:
                    self._put(part)
                    continue
                if not ended and part.number == 0:
                    self._send(link, part)  # it is kept; if it is not this one, that is told now
                self._progress.passed_rows += part.rows
                self._progress.tick()
            for _ in workers:
                self._put(None)
            for worker in workers:
                while worker.is_alive():  # an endless join would not hear of Ctrl-C everywhere
                    worker.join(_WAIT_S)
            self._raise_failed()
            self._commit(link, count, rows, digest.digest(), resumed=ended or bool(kept))
            said = link.show()
            if said["rows"] != rows or len(said["parts"]) != count:
                seen = f"{said['rows']:,} rows in {len(said['parts']):,} parts"
                raise HeadgateError(f"the dispatcher tells of {seen}; {rows:,} were sent")
            return Loaded(rows, count, _begun(there) if ended else "")
        finally:
            self._stop.set()
            for worker in workers:
                worker.join(_WAIT_S)
            link.close()

    def _begin(self, link: Link) -> dict[str, Any]:
        """Open the upload; if another is in the way, say which, and what can be done."""
        target = self._target
        try:
            return link.begin(self._arguments.mode)
        except Answered as answered:
            other = link.open_one() if answered.status in _NOT_THIS else None
            if other is None or other["name"] == target.name:
                raise
            raise HeadgateError(
                f"another upload into {target.table} is open: {other['name']}, {_begun(other)}, "
                f"{other['rows']:,} rows are kept; finish it, or forget it: "
                f"{self._abandoning(other['name'])}"
            ) from None

    def _send(self, link: Link, part: LoadPart) -> None:
        try:
            link.send(part)
        except Answered as answered:
            if answered.status != _CONFLICT or link.show()["state"] != "open":
                raise
            raise self._changed(f"part {part.number} is kept with other rows") from answered

    def _commit(self, link: Link, parts: int, rows: int, sha256: bytes, *, resumed: bool) -> None:
        for path, stamp in zip(self._arguments.files, self._stamps, strict=False):
            if _stamp(path) != stamp:
                raise self._changed(f"{path} was written while it was read")
        try:
            link.commit(parts, rows, sha256)
        except Answered as answered:
            if not resumed or answered.status not in _NOT_THIS:
                raise
            raise self._changed(answered.seen) from answered

    def _changed(self, seen: str) -> Changed:
        name = self._target.name
        if not self.begun:
            remedy = f"{name} has ended, so give another --name"
        else:
            remedy = f"give another --name when you have abandoned this: {self._abandoning(name)}"
        return Changed(
            f"the input has changed since the upload {name} was begun ({seen}); {remedy}"
        )

    def _abandoning(self, name: str) -> str:
        url = self._target.where.url
        at = "" if url == AT_DEFAULT else f" --at {url}"
        return f"headgate kv load {self._target.table} --name {name} --abandon{at}"

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
                self._send(link, part)
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
    """A name that the same command makes again: of what is in the files, and of how it is cut."""
    if _STDIN in arguments.files:
        raise BadValue("--name", "", "a stream has no name of its own; say one, to go on by it")
    digest = blake2b(digest_size=16)
    for said in (
        arguments.table,
        arguments.mode,
        str(arguments.base64),
        str(arguments.part_rows),
        str(arguments.part_bytes),
    ):
        digest.update(f"{said}|".encode())
    for path in arguments.files:
        if not Path(path).is_file():
            raise BadValue("--name", path, "it can be read once only; say a name, to go on by it")
        size = _size(path)
        digest.update(f"{form_of(path, arguments.format)}:{size}|".encode())
        with _opened(path) as file:
            while piece := file.read(_DIGEST_PIECE_BYTES):
                digest.update(piece)
    return f"load-{digest.hexdigest()}"


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
    if not arguments.files and not (arguments.abandon and arguments.name):
        raise BadValue("FILE", "", "say what to load; with --abandon a --name does as well")
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


def _stamp(path: str) -> Stamp:
    """What tells, nearly always, that a file was written meanwhile."""
    if path == _STDIN:
        return (0, 0, 0)
    seen = Path(path).stat()
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns)


def _begun(upload: dict[str, Any]) -> str:
    by = f" by {upload['by']}" if upload["by"] else ""
    return f"begun {instant_text(upload['begun_ms'] * 1_000)}{by}"


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
