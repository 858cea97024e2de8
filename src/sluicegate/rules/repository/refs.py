"""Refs: names that lead to commits, and move by compare-and-swap only.

A ref is a file of its own, or a line of `packed-refs`; the file wins. It is looked for in that
order, since whoever packs refs writes the line before the file goes. The order of writing:

    move     lock the ref, look, sync the new value, rename the lock over it, sync its folder
    remove   lock the ref, look, rewrite `packed-refs` under its own lock, then unlink the file

dulwich has a compare-and-swap too. It compares with lines of `packed-refs` that were read before
the lock was there, takes a file that it may not read for none, has no way to say "must not exist",
syncs no folder, and cannot tell a lock that a killed process left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, final

from dulwich.refs import Ref, check_ref_format

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.rules.repository.durable_files import make_folder, sync_file
from sluicegate.rules.repository.folders import GitFolders
from sluicegate.rules.repository.locks import Locks
from sluicegate.rules.repository.objects import ID_CHARS

HEAD: Final = "HEAD"
_SYMBOLIC: Final = "ref: "
_SYMBOLIC_MAX: Final = 5
_LINE_BYTES_MAX: Final = 4_096
_MAKE_TRIES: Final = 8
_PACKED: Final = "packed-refs"
_HEX: Final = frozenset("0123456789abcdef")


def check_ref(ref: str) -> str:
    """A ref's name; a `BadValue` where git could not keep it."""
    try:
        fine = ref.startswith("refs/") and ref.count("/") > 1
        if fine and check_ref_format(Ref(os.fsencode(ref))):
            return ref
    except UnicodeEncodeError:
        pass
    raise BadValue("ref", ref, "name it as git does: refs/heads/main")


@final
class Refs:
    """The refs of one repository; threads and processes may share them."""

    __slots__ = ("_folders", "_lines", "_locks", "_refs_max", "what")

    def __init__(
        self, what: str, folders: GitFolders, *, refs_max: int, lock_us_max: int, clock: Clock
    ) -> None:
        self.what = what
        self._folders = folders
        self._refs_max = refs_max
        self._locks = Locks(what, folders, wait_us_max=lock_us_max, clock=clock)
        # `packed-refs` as it was last read, and which file that was. Replaced as one.
        self._lines: tuple[tuple[int, ...], Mapping[str, str]] = ((), {})

    # Reading.

    def tip(self, ref: str) -> str | None:
        """The id that a ref leads to; None where there is no such ref, or an unborn one."""
        for _ in range(_SYMBOLIC_MAX):
            if ref != HEAD:
                check_ref(ref)
            content = self._read(ref)
            if content is None or not content.startswith(_SYMBOLIC):
                return content
            ref = content.removeprefix(_SYMBOLIC).strip()
        raise Unavailable(self.what, f"{ref} leads to itself")

    def all(self, prefix: str) -> dict[str, str]:
        """The refs whose names begin so, in order."""
        if not prefix.startswith("refs/") or ".." in prefix or "\0" in prefix:
            raise BadValue("prefix", prefix, "begin it with refs/")
        names = set(self._loose_names(prefix))
        names.update(name for name in self._read_packed() if name.startswith(prefix))
        if len(names) > self._refs_max:
            raise BadValue("ref", prefix, f"there are more than {self._refs_max} refs; narrow it")
        tips = ((name, self.tip(name)) for name in sorted(names))
        return {name: tip for name, tip in tips if tip is not None}

    def _read(self, ref: str, *, afresh: bool = False) -> str | None:
        path = os.path.join(self._folders.own if ref == HEAD else self._folders.common, ref)
        try:
            with open(path, encoding="utf-8") as file:
                line = file.read(_LINE_BYTES_MAX)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return self._read_packed(afresh=afresh).get(ref)
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(self.what, f"{ref} cannot be read: {error}") from None
        line = line.rstrip()
        if not line.startswith(_SYMBOLIC) and not _is_id(line):
            raise Unavailable(self.what, f"{ref} is damaged: it holds {line[:60]!r}")
        return line

    def _loose_names(self, prefix: str) -> list[str]:
        # The folder that holds all of them; a prefix may end within a name.
        top = os.path.join(self._folders.common, prefix.rpartition("/")[0])
        names = []
        for folder, _, files in os.walk(top):
            below = os.path.relpath(folder, self._folders.common)
            names += [f"{below}/{name}" for name in files if not name.endswith(".lock")]
        return [
            name
            for name in names
            if name.startswith(prefix) and check_ref_format(Ref(os.fsencode(name)))
        ]

    def _read_packed(self, *, afresh: bool = False) -> Mapping[str, str]:
        path = os.path.join(self._folders.common, _PACKED)
        lines = self._lines
        try:
            if not afresh and lines[0] == _mark(os.stat(path)):
                return lines[1]
            with open(path, "rb") as file:
                mark, content = _mark(os.fstat(file.fileno())), file.read()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Unavailable(self.what, f"{_PACKED} cannot be read: {error}") from None
        self._lines = mark, dict(self._parse(content))
        return self._lines[1]

    def _parse(self, content: bytes) -> list[tuple[str, str]]:
        rows = []
        for line in os.fsdecode(content).split("\n"):
            if line and line[0] not in "#^":
                hex_id, _, name = line.partition(" ")
                if not _is_id(hex_id) or not name:
                    raise Unavailable(self.what, f"{_PACKED} is damaged: it holds {line[:60]!r}")
                rows.append((name.rstrip("\r"), hex_id))
        return rows

    # Changing.

    def move(self, ref: str, to: str, *, expected: str | None) -> None:
        """Have a ref lead elsewhere if it leads to what is expected; None: if it is not there."""
        with self._changing(ref, f"{to}\n".encode("ascii"), expected) as (lock, path):
            os.rename(lock, path)

    def remove(self, ref: str, *, expected: str) -> None:
        """Take a ref away if it leads to what is expected."""
        with self._changing(ref, b"", expected) as (_, path):
            # The line goes first: the file hides it, so until then the ref is as it was.
            self._forget_packed(ref)
            with suppress(FileNotFoundError):
                os.unlink(path)

    @contextmanager
    def _changing(
        self, ref: str, content: bytes, expected: str | None
    ) -> Iterator[tuple[str, str]]:
        """Hold a ref that leads to what is expected; what was done to it then is durable."""
        path = os.path.join(self._folders.common, check_ref(ref))
        folder = os.path.dirname(path)
        try:
            with self._locks.exclusive():
                try:
                    with self._lock(ref, path, content) as lock:
                        self._compare(ref, expected)
                        yield lock, path
                    with suppress(FileNotFoundError):  # emptied and removed by somebody since
                        sync_file(folder)
                finally:
                    _prune(folder, self._folders.common)
        except OSError as error:
            raise Unavailable(self.what, f"{ref} cannot be changed: {error}") from None

    @contextmanager
    def _lock(self, ref: str, path: str, content: bytes) -> Iterator[str]:
        locks = None
        for tries_left in reversed(range(_MAKE_TRIES)):
            try:
                self._make_way(ref, path)
                with ExitStack() as attempt:
                    lock = attempt.enter_context(self._locks.hold(path, content))
                    locks = attempt.pop_all()
                break
            except FileNotFoundError:
                # Whoever removes the last ref of a folder, git too, removes the folder.
                if not tries_left:
                    raise
        if locks is not None:
            with locks:
                yield lock

    def _compare(self, ref: str, expected: str | None) -> None:
        current = self._read(ref, afresh=True)
        if current is not None and current.startswith(_SYMBOLIC):
            raise BadValue("ref", ref, f"it only leads on; name {current.removeprefix(_SYMBOLIC)}")
        if current != expected:
            raise Conflict(ref, "it is not there" if current is None else f"it leads to {current}")

    def _make_way(self, ref: str, path: str) -> None:
        """Have the folder of a ref there, and no ref in its way."""
        packed = self._read_packed()
        parts = ref.split("/")
        above = ["/".join(parts[:count]) for count in range(3, len(parts))]
        conflicting = [name for name in above if name in packed or self._is_file(name)]
        conflicting += [name for name in packed if name.startswith(f"{ref}/")]
        if conflicting:
            raise BadValue("ref", ref, f"{conflicting[0]} is in its way; choose another name")
        make_folder(os.path.dirname(path), shared=self._folders.shared)
        # A folder of no refs is no obstacle; git leaves such.
        for folder, _, files in os.walk(path, topdown=False):
            if files:
                inside = os.path.relpath(os.path.join(folder, files[0]), self._folders.common)
                raise BadValue("ref", ref, f"{inside} is in its way; choose another name")
            os.rmdir(folder)

    def _is_file(self, name: str) -> bool:
        return os.path.isfile(os.path.join(self._folders.common, name))

    def _forget_packed(self, ref: str) -> None:
        """Take the line of a ref out of `packed-refs`."""
        if ref not in self._read_packed():
            return
        path = os.path.join(self._folders.common, _PACKED)
        # What is in it is only sure once its lock is held, and the lock is made with its content.
        with self._locks.hold(path, b"") as lock:
            with open(path, "rb") as file:
                content = _without(file.read(), os.fsencode(ref))
            with open(lock, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(lock, path)
        sync_file(self._folders.common)


def _is_id(text: str) -> bool:
    return len(text) == ID_CHARS and _HEX.issuperset(text)


def _mark(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _without(content: bytes, ref: bytes) -> bytes:
    """`packed-refs` without one ref, and without the line that says what a tag of it peels to."""
    lines, skips = [], False
    for line in content.splitlines(keepends=True):
        if line.startswith(b"^"):
            if not skips:
                lines.append(line)
            continue
        skips = not line.startswith(b"#") and line.rstrip(b"\r\n").partition(b" ")[2] == ref
        if not skips:
            lines.append(line)
    return b"".join(lines)


def _prune(folder: str, common: str) -> None:
    """Remove folders that the last ref has left; `refs/heads` and the like stay."""
    while os.path.relpath(folder, common).count(os.sep) >= 2:
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)
