"""Switch file: takes `[degrade]` from the settings file anew, while the service serves.

    with SwitchFile(app.protection, "resilience.toml"):
        ...

Whatever delivers the file (an operator, a config map, a rulebook's checkout), a good one replaces
all switches in one step. A bad one, or one that is gone, changes nothing: `failure` says why. What
a program asks for must stay in it, so a file that leaves out a switch is a bad one. Only the
switches are taken; the rest is read at the start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
from sluicegate.rules.file_watch import EVERY_S_DEFAULT, FileWatch

_log: Final = logging.getLogger("sluicegate.resilience")


@final
class SwitchFile:
    """Follows the file from a thread of its own; `failure` is empty while it is in force."""

    def __init__(
        self, protection: Protection, path: str, *, every_s: float = EVERY_S_DEFAULT
    ) -> None:
        self._degradation = protection.degradation
        self._path = path
        self.failure = ""
        self.watch: Final = FileWatch(lambda: [path], self._take, every_s=every_s)

    def __enter__(self) -> SwitchFile:
        self.watch.start()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.watch.close()

    def _take(self) -> None:
        try:
            self._degradation.replace(self._read())
        except BadValue as error:
            self.failure = str(error)
            _log.error("the switches stay as they are: %s", error)
        else:
            self.failure = ""

    def _read(self) -> Mapping[str, str]:
        """The switches of the file, none of which the service would miss."""
        switches = Resilience.load(self._path).degrade
        for name in self._degradation.switches:
            if name not in switches:
                raise BadValue("degrade", name, "keep every switch that the service has")
        return switches
