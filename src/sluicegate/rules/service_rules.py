"""Service rules: keeps the rules of a service those of its files, and reports the last load.

    rules = ServiceRules(["/etc/sluicegate/rules"], put_in_force)
    ...
    rules.status()

A `FileWatch` polls the files a few times a second. They are read and compiled in its thread; a good
rule set is handed over whole, and a bad one changes nothing but the status. What could not be read
(rather than what is wrong) is tried again, though nothing has changed.

`put_in_force` is called by whoever loads: at the start by the maker, later from the watch's thread.
With `loop` it is called in that event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.rules.file_watch import FileWatch
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.parser import RULES_MAX
from sluicegate.rules.problems import BadRules
from sluicegate.rules.service_rule_set import FILE_BYTES_MAX, FILES_MAX, ServiceRuleSet, find_files
from sluicegate.rules.shared_limits import SHARED_LIMITS_MAX_DEFAULT
from sluicegate.system import SystemClock
from sluicegate.wire.timestamps import rfc3339

EVERY_S_DEFAULT: Final = 0.25
RETRY_S: Final = 5.0  # what could not be read is tried again so often
HAND_OVER_WAIT_S: Final = 0.1
HAND_OVER_WAITS_MAX: Final = 600  # an event loop that needs a minute to take a rule set is stuck
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"

_log: Final = logging.getLogger("sluicegate.rules")


@final
class ServiceRules:
    """The rules of a service, following their files.

    What is wrong with them at the start is raised. `every_s` is the time between polls. After
    `start` a thread follows the files; start it after a process has forked.
    """

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
        self._paths = [os.fspath(path) for path in paths]
        self._put_in_force = put_in_force
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
        self._lock = threading.Lock()
        # It notes how the files are before they are read: no change falls between.
        self._watch = FileWatch(self._list_files, self._load, every_s=every_s)
        self._rule_set = self._read(None)
        put_in_force(self._rule_set)
        self._record(None)

    @property
    def book(self) -> ServiceRuleSet:
        """The rules in force."""
        return self._rule_set

    def start(self) -> ServiceRules:
        """Follow the files from a thread of its own; it does not keep the program alive."""
        self._watch.start()
        return self

    def reload(self) -> None:
        """Read the files now, changed or not, as SIGHUP asks; in the thread, if there is one."""
        self._watch.report_now()

    def poll(self) -> bool:
        """Look at the files once, and load what has changed; whether there was something."""
        return self._watch.poll()

    def close(self) -> None:
        """Stop following; a load that is under way goes on to its end."""
        self._watch.close()

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
        with self._lock:
            rule_set, error = self._rule_set, self._error
            at = rfc3339(self._at_us)
        bad = error if isinstance(error, BadRules) else None
        return {
            "version": rule_set.version,
            "files": [
                {"name": one.name, "format": one.format, "rules": one.rules, "sha": one.sha}
                for one in rule_set.files
            ],
            "last_load": {
                "result": ACCEPTED if error is None else REFUSED,
                "file": bad.source if bad else None,
                "line": (bad.problems[0].line or None) if bad else None,
                "reason": "" if error is None else str(error),
                "at": at,
            },
        }

    # In the watch's thread.

    def _list_files(self) -> list[str]:
        return [path for path, _ in find_files(self._paths, files_max=self._files_max)]

    def _load(self) -> float | None:
        """Load, and put in force what is good; else return when to try again."""
        before = self._rule_set
        try:
            rule_set = self._read(before)
            if rule_set.version != before.version:
                self._hand_over(rule_set)
        except BadValue as error:
            self._refuse(error)  # what is wrong stays wrong until it is changed
            return None
        except SluicegateError as error:
            self._refuse(error)
            return RETRY_S
        except Exception as error:
            self._refuse(Unavailable("who puts rules in force", repr(error)))
            return RETRY_S
        self._record(None, rule_set)
        if rule_set.version != before.version:
            _log.info("rules version %s replaces %s", rule_set.version, before.version)
        return None

    def _refuse(self, error: Exception) -> None:
        self._record(error)
        version = self._rule_set.version
        _log.warning("the rules stay as they are (version %s): %s", version, error)

    def _read(self, before: ServiceRuleSet | None) -> ServiceRuleSet:
        return ServiceRuleSet.load(self._paths, before=before, **self._settings)  # type: ignore[arg-type] # as they were given

    def _hand_over(self, rule_set: ServiceRuleSet) -> None:
        loop = self._loop
        if loop is None or not self._watch.is_current_thread():
            self._put_in_force(rule_set)
            return
        done = threading.Event()
        failures: list[Exception] = []

        def put() -> None:
            try:
                self._put_in_force(rule_set)
            except Exception as error:
                failures.append(error)
            finally:
                done.set()

        loop.call_soon_threadsafe(put)
        for _ in range(HAND_OVER_WAITS_MAX):
            if done.wait(HAND_OVER_WAIT_S):
                break
            if self._watch.closed:
                return  # whoever closes may be what the loop is busy with
        else:
            raise Unavailable("the event loop", "it has not taken the new rules")
        if failures:
            raise failures[0]

    def _record(self, error: Exception | None, rule_set: ServiceRuleSet | None = None) -> None:
        with self._lock:
            self._error = error
            self._at_us = self._clock.now_us()
            if error is None:
                self._accepted += 1
            else:
                self._refused += 1
            if rule_set is not None:
                self._rule_set = rule_set
