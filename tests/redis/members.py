"""What one server, a cluster and a sentinel group have in common, for whoever starts them.

The program, settings, questions, pause, and the state in which a test leaves its members. How they
belong together must not be known here: that is the file of each shape.
"""

from __future__ import annotations

import os
import shutil
import signal
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.engines.child import EngineFailedError, free_port, until
from tests.engines.cluster import Cluster
from tests.redis.builds import Build, first_present

HOST = "127.0.0.1"
READY_S_MAX = 60.0
ASK_S_MAX = 5.0
# redis-py asks again for seconds, also after a refusal of a token.
ASK_ONCE = Retry(NoBackoff(), 0)

# All is on loopback and thrown away: nothing is written to disk unless a test says so.
SETTINGS = """\
bind {host}
port {port}
dir {data}
save ""
appendonly no
loglevel notice
# A replica is served at once and not after 5 s, in which others might come.
repl-diskless-sync-delay 0
"""
DURABLE = ("appendonly yes", "appendfsync always")


class RedisMembers(Cluster):
    """What all three have in common: the program, settings, questions, pause and the end."""

    engine = "redis"

    def __init__(
        self,
        size: int,
        build: Build | None = None,
        *,
        durable: bool = False,
        password: str | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        super().__init__(size, READY_S_MAX)
        self.build = build or first_present()
        self.password = password
        self.ports: dict[int, int] = {}
        self._settings = [*self.build.settings, *(DURABLE if durable else ()), *settings]
        if password is not None:
            self._settings += [f"requirepass {password}", f"masterauth {password}"]
        self._paused: set[int] = set()

    # For tests.

    def client(self, number: int = 1, **options: Any) -> Redis:
        """A redis-py client of this member alone, which asks once; close it, or use `with`."""
        defaults: dict[str, Any] = {
            "host": HOST,
            "port": self.ports[number],
            "retry": ASK_ONCE,
            "socket_timeout": ASK_S_MAX,
            "decode_responses": True,
            "protocol": 2,
        }
        return Redis(**defaults | self._credentials(number) | options)

    def ask(self, *command: str | int, number: int = 1) -> Any:
        """One command to one member on a connection of its own."""
        with self.client(number) as client:
            execute: Callable[..., Any] = client.execute_command
            return execute(*command)

    def pause(self, number: int = 1) -> None:
        """SIGSTOP: connections are accepted and kept by the kernel, and nothing answers."""
        child = self._children[number]
        os.kill(child.pid, signal.SIGSTOP)
        stopped = os.WSTOPPED | os.WNOHANG
        what = f"waiting for {child.name} to stop"
        until(lambda: os.waitid(os.P_PID, child.pid, stopped), what, ASK_S_MAX, [child])
        self._paused.add(number)

    def resume(self, number: int = 1) -> None:
        """SIGCONT: what has come in meanwhile is answered now."""
        self._paused.discard(number)
        if number in self.alive:
            os.kill(self._children[number].pid, signal.SIGCONT)

    # What `Cluster` has, with a default for the one server and with a pause to end first.

    def kill(self, number: int = 1) -> None:
        self._paused.discard(number)
        super().kill(number)

    def stop(self, number: int = 1) -> None:
        self.resume(number)
        super().stop(number)

    def restart(self, number: int = 1, *, empty: bool = False) -> None:
        """Start a member again, over what its disk holds or over nothing."""
        self.stop(number)
        if empty:
            shutil.rmtree(self._data(number))
            self._data(number).mkdir()
        super().restart(number)

    def heal(self) -> None:
        """As if just started: all members run and agree, and no key is left."""
        paused = sorted(self._paused)
        for number in paused:
            self.resume(number)
        try:
            super().heal()
            if paused:
                self.await_ready()
            self._tidy()
        except (RedisError, LookupError) as error:
            message = f"{self.engine} could not be tidied after a test: {error}\n{self.tails()}"
            raise EngineFailedError(message) from error

    @abstractmethod
    def _tidy(self) -> None:
        """Undo what tests did to members that run."""

    # What `Cluster` asks for.

    def _prepare(self) -> None:
        for number in self.numbers:
            self.ports[number] = self._free_port()
        for number in self.numbers:
            self._data(number).mkdir()
            # It is written once: sentinels, and CONFIG REWRITE, keep their findings in it.
            self._file(number).write_text("\n".join([*self._lines(number), ""]))

    def _command(self, number: int) -> list[str]:
        return [str(self.build.path), str(self._file(number))]

    def _answers(self, number: int) -> bool:
        return bool(self.ask("PING", number=number))

    def _lines(self, number: int) -> list[str]:
        common = SETTINGS.format(host=HOST, port=self.ports[number], data=self._data(number))
        return [common, *self._settings]

    def _credentials(self, number: int) -> dict[str, Any]:
        return {"password": self.password}

    def _file(self, number: int) -> Path:
        return self.folder / f"{self.member}-{number}.conf"

    def _free_port(self) -> int:
        return next(port for _ in count() if (port := free_port(HOST)) not in self.ports.values())
