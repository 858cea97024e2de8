"""A few numbered children in one temporary folder, that start, die and return together or singly.

What all clusters share lives here: order of start and end, kill, restart, logs. How a member is
launched and when it is ready belongs to the subclass, one file an engine.
"""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.engines.child import Child, EngineFailedError, until

READY_S_MAX = 120.0


class Cluster(ABC):
    """Members 1 to n; `with` starts them all and ends them all."""

    engine: ClassVar[str]  # the word for a member's name and the folder's
    member: ClassVar[str]

    def __init__(self, size: int, ready_s_max: float = READY_S_MAX) -> None:
        self.numbers = range(1, size + 1)
        self.ready_s_max = ready_s_max
        self.keep_logs = False
        self._folder: Path | None = None
        self._children: dict[int, Child] = {}
        self._members: set[int] = set()  # the members that nobody here ended

    # What an engine adds.

    @abstractmethod
    def _prepare(self) -> None:
        """Pick ports, write settings, format disks; before the first member starts."""

    @abstractmethod
    def _command(self, number: int) -> list[str]:
        """The command line of one member."""

    @abstractmethod
    def _answers(self, number: int) -> bool:
        """Ask this member, over the wire, whether it serves and sees all that are wanted."""

    # What all have.

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix=f"sluicegate-{self.engine}-"))
        try:
            self.scratch.mkdir()
            self._prepare()
            for number in self.numbers:
                self._launch(number)
            self.await_ready()
        except EngineFailedError:
            self.keep_logs = True
            self.close()
            raise
        except BaseException:  # Ctrl-C while it starts: nothing may be left behind
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.keep_logs = self.keep_logs or isinstance(error, Exception)
        self.close()

    @property
    def folder(self) -> Path:
        """Where settings, data and logs are while the cluster runs."""
        if self._folder is None:
            raise RuntimeError(f"{type(self).__name__} is not started: use it in a `with` block")
        return self._folder

    @property
    def scratch(self) -> Path:
        """For the libraries that Java unpacks; in /tmp itself they would outlive a kill -9."""
        return self.folder / "scratch"

    @property
    def alive(self) -> tuple[int, ...]:
        """The numbers of the members that run."""
        return tuple(n for n, child in self._children.items() if child.exit_code is None)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the members that run."""
        return tuple(self._children[number].pid for number in self.alive)

    def pid(self, number: int) -> int:
        """The process id of one member."""
        return self._children[number].pid

    def kill(self, number: int) -> None:
        """kill -9 one member."""
        self._members.discard(number)
        self._children[number].kill()

    def stop(self, number: int) -> None:
        """Ask one member to end in order, and wait until it has."""
        self._members.discard(number)
        self._children[number].stop()

    def restart(self, number: int) -> None:
        """Start a member again over what its disk holds; returns when all wanted are agreed."""
        self.stop(number)
        self._launch(number)
        self.await_ready()

    def heal(self) -> None:
        """Bring back every member that is down."""
        down = [number for number in self.numbers if number not in self.alive]
        for number in down:
            self._launch(number)
        if down:
            self.await_ready()

    def crashes(self) -> list[str]:
        """The last words of members that ended though nobody here ended them."""
        crashed = sorted(self._members.difference(self.alive))
        self.keep_logs = self.keep_logs or bool(crashed)
        return [self._children[number].tail() for number in crashed]

    def await_ready(self) -> None:
        """Return when each wanted member answers and sees the others."""
        members = [self._children[number] for number in sorted(self._members)]
        for number in sorted(self._members):
            what = f"waiting for {self.engine} {self.member} {number}"
            until(partial(self._answers, number), what, self.ready_s_max, members)

    def tails(self) -> str:
        """The ends of all members' logs."""
        return "\n".join(child.tail() for child in self._children.values())

    def close(self) -> None:
        """End all members and remove the folder; `keep_logs` spares the logs and settings."""
        # Not asked nicely: the data goes too, and a last broker without a quorum to tell of its
        # leaving waits minutes for one.
        for child in self._children.values():
            child.kill()
        if self._folder is not None:
            self._remove(self._folder)

    def _remove(self, folder: Path) -> None:
        if not self.keep_logs:
            shutil.rmtree(folder, ignore_errors=True)
            return
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)

    def _data(self, number: int) -> Path:
        return self.folder / f"{self.member}-{number}"

    def _launch(self, number: int) -> None:
        name = f"{self.member}-{number}"
        self._members.add(number)
        self._children[number] = Child(name, self._command(number), self.folder / f"{name}.log")
