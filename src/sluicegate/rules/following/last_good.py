"""Last good: what a node keeps on its disk, so that it can start with everything else down.

    state.json     the rollout it follows, and of each release it runs the steps that lead to it
    wanted.json    a newer rollout that it has seen and could not follow yet
    parts/<digest> the snapshots and deltas of those steps
    lock           held by the one process that writes

A state is written after its parts and takes its name by a rename; parts that it does not need go
after that. So a kill between any two steps leaves the old state or the new one, whole. All of it
was signed by the publisher, and is verified again by whoever loads it.

Workers of one machine may share the folder: one writes, all read. Everything is 0600, folders 0700.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, final

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.rules.releases.json_fields import (
    Object,
    check_format,
    like,
    text,
    write_object,
)
from sluicegate.rules.releases.signatures import ENVELOPE_BYTES_MAX
from sluicegate.wire.json_objects import parse_object

FORMAT: Final = 1
STATE: Final = "state.json"
WANTED: Final = "wanted.json"
PARTS: Final = "parts"
LOCK: Final = "lock"
NEW: Final = ".new"
STEPS_MAX: Final = 64
CHAINS_MAX: Final = 4
STATE_BYTES_MAX: Final = 64 << 20
LOADS_MAX: Final = 5  # where whoever writes removes what is just being read

_SAFELY: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_DIGEST: Final = re.compile(r"[0-9a-f]{64}|")
_T = TypeVar("_T")


class ReleaseStep(NamedTuple):
    """A signed release, and the part that leads to its rules from those of the step before.

    The first step's part is a snapshot, the others' are deltas; no part where the rules are the
    same. `data` is the part's bytes until they are on the disk.
    """

    signed: bytes
    digest: str
    data: bytes = b""


Chain = tuple[ReleaseStep, ...]


class SavedRules(NamedTuple):
    """What is on the disk: a signed rollout, and the steps to each release, with their data."""

    rollout: bytes
    chains: tuple[Chain, ...]


@final
class LastGood:
    """The folder of a node. Nothing is touched before the first call."""

    __slots__ = ("_bytes_max", "_lock", "folder", "what")

    def __init__(self, folder: str | os.PathLike[str], *, part_bytes_max: int) -> None:
        self.folder: Final = Path(folder)
        self.what: Final = f"the folder {self.folder}"
        self._bytes_max = part_bytes_max
        self._lock = -1

    def load(self) -> SavedRules | None:
        """What is there; None if nothing is. `BadValue` or `Unavailable` say what is wrong."""
        return self._read_safely(self._load)

    def rollout(self) -> bytes | None:
        """The signed rollout that was followed last, whatever became of the rest."""
        return self._read_safely(lambda: None if (kept := self._state()) is None else kept[0])

    def pending(self) -> bytes | None:
        """The newer rollout that was seen, as it was signed; None if there is none."""
        return self._read_safely(lambda: self._read(WANTED, ENVELOPE_BYTES_MAX))

    def save(self, rollout: bytes, chains: Sequence[Chain]) -> bool:
        """Keep this instead of what was kept before; False if another process keeps it."""
        return self._write_locked(lambda: self._save(rollout, chains))

    def has(self, digest: str) -> bool:
        """Whether this part is there."""
        return (self.folder / PARTS / digest).is_file()

    def save_pending(self, rollout: bytes) -> bool:
        """Save a rollout that was seen and cannot be followed yet; False as with `save`."""
        return self._write_locked(lambda: self._replace(WANTED, rollout))

    def close(self) -> None:
        """Let another process write."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    # Reading.

    def _load(self) -> SavedRules | None:
        for _ in range(LOADS_MAX):
            state = self._state()
            if state is None:
                return None
            rollout, chains = state
            parts: dict[str, bytes] = {}
            for digest in {step.digest for chain in chains for step in chain if step.digest}:
                part = self._read(f"{PARTS}/{digest}", self._bytes_max)
                if part is None:
                    break
                parts[digest] = part
            else:
                return SavedRules(rollout, tuple(_with_data(chain, parts) for chain in chains))
        raise Unavailable(self.what, f"a part that {STATE} needs is not there")

    def _state(self) -> tuple[bytes, list[Chain]] | None:
        data = self._read(STATE, STATE_BYTES_MAX)
        return None if data is None else _read_state(data)

    def _read(self, name: str, bytes_max: int) -> bytes | None:
        path = self.folder / name
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _SAFELY)
        except FileNotFoundError:
            return None
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise BadValue("folder", str(path), "it is no plain file; remove it")
            data = file.read(bytes_max + 1)
        if len(data) > bytes_max:
            raise BadValue("folder", str(path), f"it is larger than {bytes_max:,} bytes; remove it")
        return data

    def _read_safely(self, read: Callable[[], _T]) -> _T:
        try:
            self._trust()
            return read()
        except OSError as error:
            raise self._unavailable(error) from None

    # Writing.

    def _save(self, rollout: bytes, chains: Sequence[Chain]) -> None:
        steps = [step for chain in chains for step in chain if step.digest]
        before = os.listdir(self.folder / PARTS)
        for digest, data in {step.digest: step.data for step in steps if step.data}.items():
            self._replace(f"{PARTS}/{digest}", data)
        self._sync(PARTS)
        self._replace(STATE, _state(rollout, chains))
        with suppress(FileNotFoundError):
            os.unlink(self.folder / WANTED)
        for name in {*before} - {step.digest for step in steps}:
            with suppress(FileNotFoundError):
                os.unlink(self.folder / PARTS / name)

    def _replace(self, name: str, data: bytes) -> None:
        path = self.folder / name
        fresh = path.with_name(path.name + NEW)  # under the lock, so one name is enough
        with suppress(FileNotFoundError):
            os.unlink(fresh)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, 0o600)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(fresh, path)
        if path.parent == self.folder:
            self._sync("")

    def _sync(self, name: str) -> None:
        handle = os.open(self.folder / name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _write_locked(self, write: Callable[[], None]) -> bool:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._trust()
            (self.folder / PARTS).mkdir(mode=0o700, exist_ok=True)
            if not self._take_lock():
                return False
            write()
        except OSError as error:
            raise self._unavailable(error) from None
        return True

    def _take_lock(self) -> bool:
        if self._lock >= 0:
            return True
        handle = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | _SAFELY, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        self._lock = handle
        return True

    def _trust(self) -> None:
        """A folder that others write could be made to hold an older rollout than was followed."""
        with suppress(FileNotFoundError):
            mode = os.stat(self.folder).st_mode
            if mode & 0o022:
                mode_text = f"{stat.S_IMODE(mode):04o}"
                remedy = f"others may write there (mode {mode_text}); chmod 700 it"
                raise BadValue("folder", str(self.folder), remedy)

    def _unavailable(self, error: OSError) -> Unavailable:
        return Unavailable(self.what, f"{error.filename or ''} {error.strerror or error}".strip())


def _state(rollout: bytes, chains: Sequence[Chain]) -> bytes:
    if len(chains) > CHAINS_MAX or any(not 1 <= len(chain) <= STEPS_MAX for chain in chains):
        raise BadValue("folder.chains", len(chains), f"at most {CHAINS_MAX} of {STEPS_MAX} steps")
    return write_object(
        {
            "format": FORMAT,
            "orders": rollout.decode("ascii"),
            "chains": [
                [{"edition": step.signed.decode("ascii"), "part": step.digest} for step in chain]
                for chain in chains
            ],
        }
    )


def _read_state(data: bytes) -> tuple[bytes, list[Chain]]:
    fields = parse_object(data, STATE)
    check_format(fields, STATE, FORMAT)
    chains = fields.get("chains")
    if not isinstance(chains, list) or not 1 <= len(chains) <= CHAINS_MAX:
        raise BadValue(f"{STATE}.chains", chains, f"give from 1 to {CHAINS_MAX}")
    return _bytes(fields, "orders"), [_chain(chain) for chain in chains]


def _chain(steps: object) -> Chain:
    if not isinstance(steps, list) or not 1 <= len(steps) <= STEPS_MAX:
        raise BadValue(f"{STATE}.chains", steps, f"give from 1 to {STEPS_MAX} steps")
    return tuple(_step(step) for step in steps)


def _step(fields: object) -> ReleaseStep:
    if not isinstance(fields, dict):
        raise BadValue(f"{STATE}.chains", fields, "give objects")
    digest = like(fields, "part", STATE, _DIGEST, "give a digest, or nothing")
    return ReleaseStep(_bytes(fields, "edition"), digest)


def _bytes(fields: Object, name: str) -> bytes:
    return text(fields, name, STATE, chars_max=ENVELOPE_BYTES_MAX).encode("utf-8", "replace")


def _with_data(chain: Chain, parts: Mapping[str, bytes]) -> Chain:
    return tuple(step._replace(data=parts.get(step.digest, b"")) for step in chain)
