"""Objects: read and checked against their id, written so that they outlast a power cut.

Reading goes through dulwich: loose objects, packs, alternates, whoever made them and while somebody
packs them again. What is read is hashed, so what is damaged is told apart from what was meant; no
error of dulwich gets past this file.

Writing does not go through dulwich's store. That one syncs no folder, and locks an object by a file
beside it, so two writers of the same object disturb each other and a killed one blocks it forever.
Here an object is written aside and moved to its name, as git does; whoever comes second moves the
same bytes there once more.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha1
from io import BytesIO
from typing import Final, NoReturn, TypeVar, cast, final

from dulwich.config import ConfigFile
from dulwich.file import adjust_shared_perm
from dulwich.object_format import SHA1
from dulwich.object_store import DiskObjectStore
from dulwich.objects import Blob, Commit, ObjectID, ShaFile, Tag, Tree, parse_tree
from dulwich.pack import write_pack_index, write_pack_objects

from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.rules.repository.durable_files import (
    make_folder,
    remove_all,
    sync_file,
    sync_together,
    umask_mode,
    write_aside,
)
from sluicegate.rules.repository.folders import GitFolders

ID_CHARS: Final = 40
_SYNCED_MAX: Final = 100_000
_TAGS_MAX: Final = 8  # a tag of a tag of a tag
_FILE_MODE: Final = 0o444
_HEX: Final = frozenset("0123456789abcdef")
_KINDS: Final = {
    Commit.type_num: b"commit",
    Tree.type_num: b"tree",
    Blob.type_num: b"blob",
    Tag.type_num: b"tag",
}
_Kind = TypeVar("_Kind", Commit, Tag)


def check_id(field: str, text: str) -> str:
    """A whole id in small letters; a `BadValue` where it is none."""
    if len(text) != ID_CHARS or not _HEX.issuperset(text.lower()):
        raise BadValue(field, text, f"give the {ID_CHARS} hex digits of an id")
    return text.lower()


@final
class Objects:
    """The objects of one repository. Threads take turns at reading; writing needs no turn."""

    __slots__ = ("_folders", "_lock", "_store", "_synced", "what")

    def __init__(self, what: str, folders: GitFolders, *, object_bytes_max: int) -> None:
        self.what = what
        self._folders = folders
        self._lock = threading.Lock()
        self._synced: set[str] = set()  # by this process; forgotten when they are too many
        config = ConfigFile()
        config.set(b"core", b"bigFileThreshold", b"%d" % object_bytes_max)
        # Every pack has an index of its own; one of all of them outlives the packs it names.
        config.set(b"core", b"multiPackIndex", False)
        self._store = DiskObjectStore.from_config(folders.objects, config)

    def close(self) -> None:
        """Let go of open packs; they are opened again when something is read."""
        with self._lock:
            self._store.close()

    # Reading.

    def raw(self, hex_id: str) -> tuple[int, bytes]:
        """An object's kind and content; `Unavailable` where it is missing or damaged."""
        stored = self._raw(hex_id)
        if stored is None:
            raise Unavailable(self.what, f"object {hex_id} is missing")
        return stored

    def __contains__(self, hex_id: str) -> bool:
        return self._raw(hex_id) is not None

    def commit(self, hex_id: str, *, field: str = "commit") -> Commit:
        """A commit, also where a tag of it is named; a `BadValue` where it is something else."""
        at = hex_id
        for _ in range(_TAGS_MAX):
            kind, content = self.raw(at)
            if kind == Commit.type_num:
                return self._parse_object(Commit, at, content)
            if kind != Tag.type_num:
                break
            at = self._parse_object(Tag, at, content).object[1].decode("ascii")
        raise BadValue(field, hex_id, "give the id of a commit")

    def tree(self, hex_id: str) -> list[tuple[bytes, int, str]]:
        """What is in a folder: name, mode, id."""
        content = self._of_kind(hex_id, Tree.type_num, "a folder")
        try:
            return [(n, mode, sha.decode("ascii")) for n, mode, sha in parse_tree(content, 20)]
        except Exception as error:  # whatever a parser makes of damaged bytes
            self._raise_damaged(hex_id, error)

    def blob(self, hex_id: str) -> bytes:
        """What a file holds."""
        return self._of_kind(hex_id, Blob.type_num, "a file")

    def with_prefix(self, prefix: str) -> list[str]:
        """The ids that begin so, in order."""
        with self._lock:
            try:
                ids = list(self._store.iter_prefix(prefix.encode("ascii")))
            except Exception as error:  # a damaged index raises anything
                raise Unavailable(self.what, f"its objects cannot be listed: {error}") from None
        return sorted(hex_id.decode("ascii") for hex_id in ids)

    def _of_kind(self, hex_id: str, kind: int, called: str) -> bytes:
        actual, content = self.raw(hex_id)
        if actual != kind:
            raise Unavailable(self.what, f"object {hex_id} should be {called} and is not")
        return content

    def _raw(self, hex_id: str) -> tuple[int, bytes] | None:
        name = ObjectID(hex_id.encode("ascii"))
        # Somebody may pack it between a look into the packs and a look for a loose one.
        for _ in range(2):
            try:
                with self._lock:
                    kind, content = self._store.get_raw(name)
            except KeyError:
                pass
            except SluicegateError:
                raise
            except Exception as error:  # damaged packs raise anything
                self._raise_damaged(hex_id, error)
            else:
                if kind not in _KINDS or _id_of(kind, content) != hex_id:
                    raise Unavailable(
                        self.what, f"object {hex_id} is damaged: it hashes to another id"
                    )
                return kind, content
        return None

    def _parse_object(self, kind: type[_Kind], hex_id: str, content: bytes) -> _Kind:
        try:
            parsed = kind.from_raw_string(kind.type_num, content, ObjectID(hex_id.encode("ascii")))
            if isinstance(parsed, Commit):
                # These are read when they are asked for, and then it is too late to say whose.
                _ = parsed.tree, parsed.parents, parsed.author_time, parsed.commit_time
        except Exception as error:  # whatever a parser makes of damaged bytes
            self._raise_damaged(hex_id, error)
        return cast("_Kind", parsed)

    def _raise_damaged(self, hex_id: str, error: Exception) -> NoReturn:
        problem = f"{type(error).__name__}: {error}"[:200]
        raise Unavailable(self.what, f"object {hex_id} is damaged: {problem}") from None

    # Writing.

    def add(self, objects: Iterable[ShaFile], *, loose_max: int) -> None:
        """Keep these; when this returns a ref may lead to them.

        What is loose already is kept and made young, so that nobody's `git gc` takes it for left
        over. What is in a pack is written once more: its age cannot be told from the pack's.
        """
        try:
            # Each once: what is twice in a pack makes it a bad one.
            by_id = {one.id: one for one in objects}
            missing = [one for one in by_id.values() if not self._is_stored(one)]
            if len(missing) > loose_max:
                self._add_pack(missing)
            else:
                self._add_loose(missing)
        except OSError as error:
            raise Unavailable(self.what, f"an object cannot be written: {error}") from None
        self._remember(one.decode("ascii") for one in by_id)

    def is_loose(self, hex_id: str) -> bool:
        """Whether an object has a file of its own; what is in a pack was synced by its maker."""
        return os.path.exists(self._path(hex_id))

    def sync(self, ids: Iterable[str]) -> None:
        """Have the disk hold these, whoever wrote them: git leaves loose ones to the system."""
        todo = [one for one in ids if one not in self._synced]
        try:
            self._sync_loose(todo)
        except FileNotFoundError:
            # Somebody packed them meanwhile, and synced the pack.
            self._sync_loose(todo)
        except OSError as error:
            raise Unavailable(self.what, f"an object cannot be synced: {error}") from None
        self._remember(todo)

    def _sync_loose(self, ids: Sequence[str]) -> None:
        paths = [path for path in map(self._path, ids) if os.path.exists(path)]
        sync_together(paths)
        self._sync_folders(paths)

    def _sync_folders(self, paths: Sequence[str]) -> None:
        if paths:
            sync_together({self._folders.objects, *map(os.path.dirname, paths)})

    def _remember(self, ids: Iterable[str]) -> None:
        if len(self._synced) > _SYNCED_MAX:
            self._synced = set()
        self._synced.update(ids)

    def _path(self, hex_id: str) -> str:
        return os.path.join(self._folders.objects, hex_id[:2], hex_id[2:])

    def _is_stored(self, one: ShaFile) -> bool:
        hex_id = one.id.decode("ascii")
        path = self._path(hex_id)
        try:
            expected = _header(one.type_num, one.as_raw_string()) + one.as_raw_string()
            with open(path, "rb") as file:
                if zlib.decompressobj().decompress(file.read(), len(expected) + 1) != expected:
                    return False
            os.utime(path)
            # Whoever wrote it may not have synced it.
            self._sync_loose([hex_id])
        except (OSError, zlib.error):
            return False
        return True

    def _add_loose(self, objects: Sequence[ShaFile]) -> None:
        files = [(self._path(one.id.decode("ascii")), one.as_legacy_object()) for one in objects]
        for path, _ in files:
            with suppress(FileExistsError):
                folder = os.path.dirname(path)
                os.mkdir(folder)
                adjust_shared_perm(folder, self._folders.shared)
        self._place_files(files, "tmp_obj_")
        self._sync_folders([path for path, _ in files])

    def _add_pack(self, objects: Sequence[ShaFile]) -> None:
        folder = os.path.join(self._folders.objects, "pack")
        make_folder(folder, shared=self._folders.shared)
        pack, index = BytesIO(), BytesIO()
        entries, checksum = write_pack_objects(pack, objects, object_format=SHA1, deltify=False)
        rows = sorted((raw_id, offset, crc) for raw_id, (offset, crc) in entries.items())
        write_pack_index(index, rows, checksum)
        path = os.path.join(folder, f"pack-{checksum.hex()}")
        # The index comes last: a pack without one is not looked at.
        for ending, content in ((".pack", pack.getvalue()), (".idx", index.getvalue())):
            self._place_files([(path + ending, content)], f"tmp_{ending[1:]}_")
            sync_file(folder)

    def _place_files(self, files: Sequence[tuple[str, bytes]], prefix: str) -> None:
        mode = umask_mode(_FILE_MODE, self._folders.objects)
        drafts: list[str] = []
        try:
            for path, content in files:
                folder, shared = os.path.dirname(path), self._folders.shared
                drafts.append(write_aside(folder, content, prefix=prefix, mode=mode, shared=shared))
            sync_together(drafts)
            for (path, _), made in zip(files, drafts, strict=True):
                os.rename(made, path)
        except BaseException:
            remove_all(drafts)
            raise


def _header(kind: int, content: bytes) -> bytes:
    return b"%s %d\0" % (_KINDS[kind], len(content))


def _id_of(kind: int, content: bytes) -> str:
    return sha1(_header(kind, content) + content, usedforsecurity=False).hexdigest()
