"""`sluicegate kv load TABLE FILE...`: many rows into a table, beside live traffic, visible at once.

The input is read as a stream and cut into parts; several are sent at once. Killed or interrupted,
the upload resumes where it stopped when the same command runs again, from any machine: stored parts
are not sent again. At the end the dispatcher checks that all is there, and makes it visible. An
upload is named by a digest of its input, so input that changed is another upload.

No upload is begun before the first part is read, since an open upload keeps others out of its
table. Input without a row is mostly a broken pipe, so it replaces no table unless asked to.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from hashlib import sha256
from itertools import chain, islice
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, Final, NamedTuple, final

from sluicegate.apps.kv.address import AT_DEFAULT, add_address_flags, address_of
from sluicegate.apps.kv.load.client import UploadClient, UploadRefused, UploadStopped, UploadTarget
from sluicegate.apps.kv.load.files import (
    STDIN,
    LoadPart,
    Stamp,
    cut_parts,
    name_of,
    open_input,
    position_of,
    size_of,
    stamp_of,
    total_of,
)
from sluicegate.apps.kv.load.formats import FORMS, form_of, parse_rows
from sluicegate.apps.kv.load.progress import UploadProgress
from sluicegate.command_line.service_client import TOKEN_VARIABLE
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.wire.timestamps import utc_text

PART_ROWS_DEFAULT: Final = 10_000
PART_BYTES_DEFAULT: Final = 1 << 20
AT_ONCE_DEFAULT: Final = 4
PATIENCE_S_DEFAULT: Final = 120.0
_NOT_THIS: Final = frozenset({400, 409, 412, 422})  # kept already, and it is something else
_WAIT_S: Final = 0.1
_CONFLICT: Final = 409

EXAMPLES: Final = f"""\
examples:
  sluicegate kv load listings rows.csv                 a header: partition,sort,value,ttl
  sluicegate kv load listings a.jsonl b.jsonl --mode replace
  zcat rows.tsv.gz | sluicegate kv load listings - --format tsv --name monday
  {TOKEN_VARIABLE}=... sluicegate kv load listings rows.csv \\
      --at https://kv.internal:7080 --ca ca.pem
  sluicegate kv load listings --name monday --abandon  forget an upload that is open

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
        help="merge into the rows there, or replace them (default merge)",
    )
    parser.add_argument(
        "--allow-empty",
        action="store_true",
        help="with --mode replace: input without a row is meant to empty the table",
    )
    parser.add_argument(
        "--name", default="", help="the upload's name (default: a digest of the input)"
    )
    parser.add_argument(
        "--abandon", action="store_true", help="abandon the open upload of these files or this name"
    )
    parser.add_argument(
        "--format", choices=("auto", *FORMS), default="auto", help="(default: by the file's name)"
    )
    parser.add_argument(
        "--base64", action="store_true", help="partition, sort and value are base64 of bytes"
    )
    add_address_flags(parser, "with bulk on the table")
    parser.add_argument(
        "--at-once", type=int, default=AT_ONCE_DEFAULT, metavar="N", help="parts in flight"
    )
    parser.add_argument(
        "--part-rows", type=int, default=PART_ROWS_DEFAULT, metavar="N", help="rows per part"
    )
    parser.add_argument(
        "--part-bytes", type=int, default=PART_BYTES_DEFAULT, metavar="N", help="bytes per part"
    )
    parser.add_argument(
        "--patience-s",
        type=float,
        default=PATIENCE_S_DEFAULT,
        metavar="S",
        help=f"how long a part is tried again (default {PATIENCE_S_DEFAULT:.0f})",
    )
    parser.add_argument("--quiet", action="store_true", help="print only the result")


def run(arguments: Namespace) -> int:
    """Load, and report."""
    _check(arguments)
    stamps = [] if arguments.name else list(map(stamp_of, arguments.files))
    name = arguments.name or name_of(arguments)
    target = UploadTarget(address_of(arguments), arguments.table, name)
    progress = UploadProgress(sys.stderr, total_of(arguments.files), quiet=arguments.quiet)
    if arguments.abandon:
        _abandon(target, progress, arguments)
        return 0
    load = UploadRun(target, progress, arguments, stamps)
    try:
        outcome = load.run()
    except InputChanged:
        raise
    except (KeyboardInterrupt, SluicegateError) as error:
        if load.started:
            progress.end(load.describe_rest(error))
        raise
    if not outcome.started:
        progress.end(f"there is no row to load, and no upload was begun; {arguments.table} stays")
        return 0
    amount = f"{outcome.rows:,} rows in {outcome.parts:,} parts"
    if outcome.before:
        progress.end(
            f"nothing to do: {name} was loaded before, {outcome.before}, with {amount}; this run "
            f"loaded none. To load the same rows into {arguments.table} again, give another --name"
        )
    else:
        progress.end(
            f"{amount} are in {arguments.table} "
            f"({progress.stored_rows:,} of this run, {progress.rate():,.0f}/s); upload {name}"
        )
    return 0


def _abandon(target: UploadTarget, progress: UploadProgress, arguments: Namespace) -> None:
    link = UploadClient(target, arguments.patience_s, Event(), progress.count_wait)
    try:
        link.abandon()
    finally:
        link.close()
    progress.end(f"upload {target.name} into {target.table} is abandoned; none of it can be seen")


class InputChanged(SluicegateError):  # noqa: N818 - it names the thing, as in contracts.errors
    """The input is not what it was; to go on with it makes no sense."""


class UploadOutcome(NamedTuple):
    """What is in the table now. `before` describes an earlier run, if that one loaded it."""

    rows: int
    parts: int
    before: str
    started: bool = True  # False where there was nothing to load


@final
class UploadRun:
    """One run of an upload."""

    def __init__(
        self,
        target: UploadTarget,
        progress: UploadProgress,
        arguments: Namespace,
        stamps: list[Stamp],
    ) -> None:
        self._target = target
        self._stamps = stamps  # of the files, before they were read for their name
        self._progress = progress
        self._arguments = arguments
        self._stop = Event()
        self._failures: list[BaseException] = []
        self._queue: Queue[LoadPart | None] = Queue(2 * arguments.at_once)
        self._input_is_bad = False
        self.started = False

    def run(self) -> UploadOutcome:
        """Send what is not stored yet, and commit all."""
        link = self._link()
        workers: list[Thread] = []
        try:
            parts = self._parts()
            first = list(islice(parts, 1))
            if not first and self._keeps_table(link):
                return UploadOutcome(0, 0, "", started=False)
            state = self._begin(link)
            stored = frozenset(state["parts"])
            ended = state["state"] != "open"
            self.started = not ended
            for _ in range(0 if ended else self._arguments.at_once):
                worker = Thread(target=self._work, daemon=True)
                worker.start()
                workers.append(worker)
            digest, count, rows = sha256(), 0, 0
            for part in chain(first, parts):
                digest.update(part.sha256)
                count, rows = part.number + 1, rows + part.rows
                if not ended and part.number not in stored:
                    self._put(part)
                    continue
                if not ended and part.number == 0:
                    self._send(link, part)  # it is kept; if it is not this one, that is told now
                self._progress.skipped_rows += part.rows
                self._progress.tick()
            for _ in workers:
                self._put(None)
            for worker in workers:
                while worker.is_alive():  # an endless join would not hear of Ctrl-C everywhere
                    worker.join(_WAIT_S)
            self._raise_failure()
            self._commit(link, count, rows, digest.digest(), resumed=ended or bool(stored))
            upload = link.show()
            if upload["rows"] != rows or len(upload["parts"]) != count:
                detail = f"{upload['rows']:,} rows in {len(upload['parts']):,} parts"
                raise SluicegateError(f"the dispatcher tells of {detail}; {rows:,} were sent")
            return UploadOutcome(rows, count, _started_text(state) if ended else "")
        finally:
            self._stop.set()
            for worker in workers:
                worker.join(_WAIT_S)
            link.close()

    def describe_rest(self, error: BaseException) -> str:
        """What is left of an upload that was begun, in words; one that holds nothing is ended."""
        name = self._target.name
        again = not self._input_is_bad and not isinstance(error, UploadRefused)
        if not again and self._abandon_if_empty():
            return f"nothing was kept, so upload {name} is abandoned; {self._target.table} stays"
        rows = self._progress.stored_rows + self._progress.skipped_rows
        words = f"{rows:,} rows are kept, and none can be seen yet; "
        if not again:
            way_out = f"or forget it: {self._abandon_command(name)}"
            return f"{words}when that is mended go on with --name {name}, {way_out}"
        name_flag = "" if self._arguments.name else f" (--name {name})"
        return f"{words}run the same command again to go on{name_flag}"

    def _abandon_if_empty(self) -> bool:
        """Abandon the upload if no part is stored; return whether it was."""
        link = UploadClient(
            self._target, self._arguments.patience_s, Event(), self._progress.count_wait
        )
        try:
            if link.show()["parts"]:
                return False
            link.abandon()
        except SluicegateError:
            return False  # what went wrong first is what is told
        else:
            return True
        finally:
            link.close()

    def _keeps_table(self, link: UploadClient) -> bool:
        """Whether input without a row leaves the table alone; False if it is to be emptied."""
        if self._arguments.mode == "replace":
            if self._arguments.allow_empty:
                return False
            remedy = (
                f"there is no row in it, and {self._target.table} would be empty; nothing was "
                "begun. See to what writes it; if that is meant, say --allow-empty"
            )
            raise BadValue("FILE", " ".join(self._arguments.files), remedy)
        before = link.find_upload()
        if before is not None and before["rows"]:
            self.started = before["state"] == "open"
            raise self._input_changed("there is no row in it now")
        return True

    def _begin(self, link: UploadClient) -> dict[str, Any]:
        """Open the upload; if another is open, name it and the remedy."""
        target = self._target
        try:
            return link.begin(self._arguments.mode)
        except UploadRefused as refusal:
            other = link.find_open() if refusal.status in _NOT_THIS else None
            if other is None or other["name"] == target.name:
                raise
            raise SluicegateError(
                f"another upload into {target.table} is open: {other['name']}, "
                f"{_started_text(other)}, {other['rows']:,} rows are kept; finish it, "
                f"or forget it: {self._abandon_command(other['name'])}"
            ) from None

    def _send(self, link: UploadClient, part: LoadPart) -> None:
        try:
            link.send(part)
        except UploadRefused as refusal:
            if refusal.status != _CONFLICT or link.show()["state"] != "open":
                raise
            raise self._input_changed(f"part {part.number} is kept with other rows") from refusal

    def _commit(
        self, link: UploadClient, parts: int, rows: int, sha256: bytes, *, resumed: bool
    ) -> None:
        for path, stamp in zip(self._arguments.files, self._stamps, strict=False):
            if stamp_of(path) != stamp:
                raise self._input_changed(f"{path} was written while it was read")
        try:
            link.commit(parts, rows, sha256)
        except UploadRefused as refusal:
            if not resumed or refusal.status not in _NOT_THIS:
                raise
            raise self._input_changed(refusal.detail) from refusal

    def _input_changed(self, detail: str) -> InputChanged:
        name = self._target.name
        if not self.started:
            remedy = f"{name} has ended, so give another --name"
        else:
            remedy = (
                f"give another --name when you have abandoned this: {self._abandon_command(name)}"
            )
        return InputChanged(
            f"the input has changed since the upload {name} was begun ({detail}); {remedy}"
        )

    def _abandon_command(self, name: str) -> str:
        url = self._target.where.url
        at = "" if url == AT_DEFAULT else f" --at {url}"
        return f"sluicegate kv load {self._target.table} --name {name} --abandon{at}"

    def _link(self) -> UploadClient:
        patience_s = self._arguments.patience_s
        return UploadClient(self._target, patience_s, self._stop, self._progress.count_wait)

    def _parts(self) -> Iterator[LoadPart]:
        arguments = self._arguments
        try:
            yield from cut_parts(
                self._rows(), rows_max=arguments.part_rows, bytes_max=arguments.part_bytes
            )
        except BadValue:
            self._input_is_bad = True
            raise

    def _rows(self) -> Iterator[bytes]:
        arguments = self._arguments
        earlier_bytes = 0
        for path in arguments.files:
            form = form_of(path, arguments.format)
            with open_input(path) as file:
                for number, row in enumerate(parse_rows(file, path, form, base64=arguments.base64)):
                    if number % 1_000 == 0:
                        self._progress.read_bytes = earlier_bytes + position_of(file, path)
                    yield row
            earlier_bytes += size_of(path)
            self._progress.read_bytes = earlier_bytes

    def _put(self, part: LoadPart | None) -> None:
        while True:
            self._raise_failure()
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
                self._progress.count_stored(part.rows)
        except UploadStopped:
            pass
        except BaseException as error:  # told by the thread that waits for us
            self._failures.append(error)
            self._stop.set()
        finally:
            link.close()

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures[0]


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
    if arguments.files.count(STDIN) > 1:
        raise BadValue("FILE", STDIN, "stdin can be read once")
    for path in arguments.files:
        form_of(path, arguments.format)
        if path != STDIN:
            open_input(path).close()


def _started_text(upload: dict[str, Any]) -> str:
    by = f" by {upload['by']}" if upload["by"] else ""
    return f"begun {utc_text(upload['begun_ms'] * 1_000)}{by}"
