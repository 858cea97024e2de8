"""Service watch: keeps a service's rules those of its files, and tells how the last load went.

    rules = ServiceRules(["/etc/sluicegate/rules"], put_in_force)
    ...
    rules.status()

The files are looked at a few times a second, as `watch.py` looks at one: whatever way they are
replaced is seen, and what is written in place is read when a look has found it as the look before
did. They are read and compiled in the watch's own thread; a good book is handed over whole, and a
bad one changes nothing but the status. What could not be read (rather than what is wrong) is tried
again, though nothing has changed.

`put_in_force` is called by whoever loads: at the start by the maker, later from the watch's thread.
Who serves from an event loop gives it with `loop`, and it is called there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.problems import BadRules
from sluicegate.rules.resources.parser import RULES_MAX
from sluicegate.rules.service_rule_set import FILE_BYTES_MAX, FILES_MAX, ServiceRuleSet, find_files
from sluicegate.rules.shared_limits import SHARED_LIMITS_MAX_DEFAULT
from sluicegate.system import SystemClock

EVERY_S_DEFAULT: Final = 0.25
EVERY_S_MIN: Final = 0.01
EVERY_S_MAX: Final = 86_400.0
RETRY_S: Final = 5.0  # what could not be read is tried again so often
HAND_OVER_LOOK_S: Final = 0.1
HAND_OVER_LOOKS_MAX: Final = 600  # an event loop that needs a minute to take a book is stuck
CLOSE_S_MAX: Final = 60.0
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"

_log: Final = logging.getLogger("sluicegate.rules")

# What tells two states of a file apart: which file it is, and how it was last written.
_File: TypeAlias = "tuple[tuple[int, int], tuple[int, int, int]] | None"
_Files: TypeAlias = "dict[str, _File]"


@final
class ServiceRules:
    """The rules of a service, following their files.

    What is wrong with them at the start is raised. `every_s` is the time between looks. After
    `start` a thread follows the files; it must be started after a process has forked.
    """

    __slots__ = (
        "_accepted",
        "_at_us",
        "_book",
        "_clock",
        "_closed",
        "_error",
        "_every_s",
        "_files_max",
        "_loading",
        "_loop",
        "_paths",
        "_put_in_force",
        "_refused",
        "_retry_looks",
        "_seen",
        "_settings",
        "_thread",
        "_told",
        "_wake",
    )

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        put_in_force: Callable[[ServiceRuleSet], None],
        *,
        semantics: Semantics | str = Semantics.SLUICEGATE,
        every_s: float = EVERY_S_DEFAULT,
        loop: asyncio.AbstractEventLoop | None = None,
        rules_max: int = RULES_MAX,
        shared_limits_max: int = SHARED_LIMITS_MAX_DEFAULT,
        files_max: int = FILES_MAX,
        file_bytes_max: int = FILE_BYTES_MAX,
        merge_domains: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if not EVERY_S_MIN <= every_s <= EVERY_S_MAX:
            raise BadValue("every_s", every_s, f"give {EVERY_S_MIN} to {EVERY_S_MAX:,.0f} seconds")
        self._paths = [os.fspath(path) for path in paths]
        self._put_in_force = put_in_force
        self._every_s = every_s
        self._files_max = files_max
        self._loop = loop
        self._clock: Clock = SystemClock() if clock is None else clock
        self._settings = {
            "semantics": semantics,
            "rules_max": rules_max,
            "shared_limits_max": shared_limits_max,
            "files_max": files_max,
            "file_bytes_max": file_bytes_max,
            "merge_domains": merge_domains,
        }
        self._accepted = self._refused = 0
        self._error: Exception | None = None
        self._loading = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._retry_looks = 0
        self._thread: threading.Thread | None = None
        # How the files are is noted before they are read: no change falls between.
        self._seen = self._told = self._states()
        self._book = self._read(None)
        put_in_force(self._book)
        self._noted(None)

    @property
    def book(self) -> ServiceRuleSet:
        """The rules in force."""
        return self._book

    def start(self) -> ServiceRules:
        """Follow the files from a thread of its own; it does not keep the program alive."""
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._run, name="watch rules", daemon=True)
            self._thread.start()
        return self

    def reload(self) -> None:
        """Read the files now, changed or not, as SIGHUP asks; in the thread, if there is one."""
        if self._thread is None or threading.current_thread() is self._thread:
            self._seen = self._told = self._states()
            self._load()
        else:
            self._wake.set()

    def look(self) -> bool:
        """Look once, and load if there is something to load; whether there was."""
        before, self._seen = self._seen, self._states()
        if self._seen == self._told:
            if not self._retry_looks:
                return False
            self._retry_looks -= 1
            if self._retry_looks:
                return False
        elif _half_written(before, self._seen, self._told):
            return False
        self._told = self._seen
        self._load()
        return True

    def close(self) -> None:
        """Stop following; a load that is under way goes on to its end."""
        self._closed.set()
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_S_MAX)
        self._thread = None

    def __enter__(self) -> ServiceRules:
        return self.start()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    @property
    def counts(self) -> tuple[int, int]:
        """Loads since the start: accepted, refused."""
        return self._accepted, self._refused

    def status(self) -> Mapping[str, object]:
        """Which rules are in force, and how the last load went; what JSON can hold."""
        with self._loading:
            book, error = self._book, self._error
            at = rfc3339(self._at_us)
        file, line, reason = _told_of(error)
        return {
            "version": book.version,
            "files": [
                {"name": one.name, "format": one.format, "rules": one.rules, "sha": one.sha}
                for one in book.files
            ],
            "last_load": {
                "result": ACCEPTED if error is None else REFUSED,
                "file": file,
                "line": line,
                "reason": reason,
                "at": at,
            },
        }

    # Inside.

    def _run(self) -> None:
        while not self._closed.is_set():
            asked = self._wake.wait(self._every_s)
            if self._closed.is_set():
                return
            try:
                if asked:
                    self._wake.clear()
                    self.reload()
                else:
                    self.look()
            except Exception:
                _log.exception("looking after the rules failed; it goes on")

    def _load(self) -> None:
        """Load, and put in force what is good."""
        before = self._book
        try:
            book = self._read(before)
            if book.version != before.version:
                self._hand_over(book)
        except BadValue as error:
            self._stay(error, 0)  # what is wrong stays wrong until it is changed
            return
        except Exception as error:
            known = isinstance(error, SluicegateError)
            told = error if known else Unavailable("who puts rules in force", repr(error))
            self._stay(told, max(1, round(RETRY_S / self._every_s)))
            return
        self._retry_looks = 0
        self._noted(None, book)
        if book.version != before.version:
            _log.info("rules version %s replaces %s", book.version, before.version)

    def _stay(self, error: Exception, retry_looks: int) -> None:
        self._retry_looks = retry_looks
        self._noted(error)
        _log.warning("the rules stay as they are (version %s): %s", self._book.version, error)

    def _read(self, before: ServiceRuleSet | None) -> ServiceRuleSet:
        return ServiceRuleSet.load(self._paths, before=before, **self._settings)  # type: ignore[arg-type] # as they were given

    def _hand_over(self, book: ServiceRuleSet) -> None:
        loop = self._loop
        if loop is None or threading.current_thread() is not self._thread:
            self._put_in_force(book)
            return
        done = threading.Event()
        failed: list[Exception] = []

        def put() -> None:
            try:
                self._put_in_force(book)
            except Exception as error:
                failed.append(error)
            finally:
                done.set()

        loop.call_soon_threadsafe(put)
        for _ in range(HAND_OVER_LOOKS_MAX):
            if done.wait(HAND_OVER_LOOK_S):
                break
            if self._closed.is_set():
                return  # whoever closes may be what the loop is busy with
        else:
            raise Unavailable("the event loop", "it has not taken the new rules")
        if failed:
            raise failed[0]

    def _noted(self, error: Exception | None, book: ServiceRuleSet | None = None) -> None:
        with self._loading:
            self._error = error
            self._at_us = self._clock.now_us()
            if error is None:
                self._accepted += 1
            else:
                self._refused += 1
            if book is not None:
                self._book = book

    def _states(self) -> _Files:
        """How all files are now; a folder that cannot be read is a state as well."""
        try:
            found = find_files(self._paths, files_max=self._files_max)
        except SluicegateError as error:
            return {str(error): None}
        return {path: _state_of(path) for path, _ in found}


def _half_written(before: _Files, now: _Files, told: _Files) -> bool:
    """Whether some file may still be being written."""
    for path, state in now.items():
        last = told.get(path)
        if state is None or state == last:
            continue
        # Another file under the same name was moved there and is complete. One that is new may be
        # just being written; that it is not, shows in the next look finding it the same.
        replaced = last is not None and state[0] != last[0]
        if not replaced and state != before.get(path):
            return True
    return False


def _state_of(path: str) -> _File:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    written = (found.st_mtime_ns, found.st_ctime_ns, found.st_size)
    return (found.st_dev, found.st_ino), written


def _told_of(error: Exception | None) -> tuple[str | None, int | None, str]:
    """The file, the line and the reason of an error, as far as it has them."""
    if error is None:
        return None, None, ""
    if isinstance(error, BadRules):
        return error.source, error.problems[0].line or None, str(error)
    return None, None, str(error)


def rfc3339(at_us: int) -> str:
    """An instant as text, in UTC."""
    seconds, us = divmod(at_us, 1_000_000)
    days, second = divmod(seconds, 86_400)
    year, month, day = _civil(days)
    hour, minute = second // 3_600, second // 60 % 60
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second % 60:02}.{us:06}Z"


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of so many days after 1970-01-01.

    Years are counted from March, so a leap day is the last of its year; 400 of them are an era of
    146,097 days.
    """
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    return era * 400 + year + (month <= 2), month, day
