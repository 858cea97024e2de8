"""Carrier: a process of its own that carries commits to or from another repository, once.

A connection that hangs cannot be cut from outside within a process, so `remote.py` starts this one,
writes a task to it, reads what became of it, and kills it when its time is over.

What is fetched is kept apart until it is whole: a pack in a folder of its own, checked, and every
object in it asked whether what it leads to is there. Only then is it moved to the others.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Final

from dulwich.client import GitClient, get_transport_and_path
from dulwich.config import StackedConfig
from dulwich.object_store import DiskObjectStore, ObjectStoreGraphWalker
from dulwich.objects import Commit, ObjectID, ShaFile, Tag, Tree
from dulwich.pack import Pack
from dulwich.refs import Ref

from sluicegate.contracts.errors import BadValue, Conflict, SluicegateError, Unavailable
from sluicegate.rules.repository.durable_files import sync_file
from sluicegate.rules.repository.repository import Repository

FETCH: Final = "fetch"
PUSH: Final = "push"
_SUBMODULE: Final = 0o160000
# What servers say when the ref has moved since they told where it leads.
_MOVED: Final = ("failed to update", "cannot lock", "stale info", "fetch first", "non-fast-forward")

Task = Mapping[str, Any]


def main() -> None:
    """Read a task, do it, and write what became of it; the parent reads that."""
    task = json.load(sys.stdin)
    try:
        answer = {"commit": _fetch(task) if task["do"] == FETCH else _push(task)}
    except Conflict as error:
        answer = {"conflict": error.what, "seen": error.detail}
    except BadValue as error:
        answer = {"field": error.field, "value": str(error.value), "remedy": error.remedy}
    except Exception as error:  # whatever a server, a network or dulwich makes of it
        problem = str(error) if isinstance(error, SluicegateError) else _plain(error)
        answer = {"unavailable": problem}
    json.dump(answer, sys.stdout)


def _plain(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _client(task: Task) -> tuple[GitClient, str]:
    return get_transport_and_path(task["url"], config=StackedConfig.default(), quiet=True)


def _fetch(task: Task) -> str:
    client, path = _client(task)
    ref, remote_tips = Ref(task["ref"].encode()), dict[str, ObjectID]()
    with Repository.open(task["path"]) as repository:
        objects = repository.objects_folder
        store = DiskObjectStore(objects)
        apart = DiskObjectStore(task["aside"], alternates=[objects], fsync_object_files=True)

        def wants(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
            del depth  # all of it is wanted
            if ref not in refs:
                raise BadValue("ref", task["ref"], f"there is no such ref at {task['shown']}")
            remote_tips["tip"] = refs[ref]
            return [] if refs[ref] in store else [refs[ref]]

        def parents(commit: ObjectID) -> list[ObjectID]:
            one = store[commit]
            return one.parents if isinstance(one, Commit) else []

        tips = repository.refs("refs/").values()
        walker = ObjectStoreGraphWalker([ObjectID(tip.encode()) for tip in tips], parents)
        try:
            with open(os.path.join(task["aside"], "incoming"), "w+b") as incoming:
                client.fetch_pack(
                    path,
                    wants,
                    walker,
                    _bounded(incoming, task["bytes_max"]),
                    ref_prefix=[ref],
                )
                # An empty pack comes where nothing was asked for.
                if incoming.tell() and remote_tips["tip"] not in store:
                    incoming.seek(0)
                    pack = apart.add_thin_pack(incoming.read, None)
                    check_whole(apart, pack)
                    pack.close()
                    _make_durable(task["aside"], objects)
        finally:
            apart.close()
            store.close()
        return repository.info(remote_tips["tip"].decode("ascii")).id


def _bounded(file: BinaryIO, bytes_max: int) -> Any:
    bytes_left = bytes_max

    def write(data: bytes) -> int:
        nonlocal bytes_left
        bytes_left -= len(data)
        if bytes_left < 0:
            raise BadValue("repository.remote_bytes_max", bytes_max, "it sends more; raise it")
        return file.write(data)

    return write


def check_whole(store: DiskObjectStore, pack: Pack) -> None:
    """Refuse a pack whose objects lead to something that is nowhere."""
    for one in pack.iterobjects():
        for needed in _references(one):
            if needed not in store:
                what = f"{one.type_name.decode()} {one.id.decode()}"
                raise Unavailable("what it sends", f"{what} needs {needed.decode()}, which lacks")


def _references(one: ShaFile) -> Iterable[ObjectID]:
    if isinstance(one, Commit):
        return [one.tree, *one.parents]
    if isinstance(one, Tree):
        return [entry.sha for entry in one.items() if entry.mode != _SUBMODULE]
    if isinstance(one, Tag):
        return [one.object[1]]
    return []


def _make_durable(temporary: str, objects: str) -> None:
    """Move a pack to the others; its index last, since without one it is not looked at."""
    source, target = os.path.join(temporary, "pack"), os.path.join(objects, "pack")
    os.makedirs(target, exist_ok=True)
    for name in sorted(os.listdir(source), reverse=True):  # .pack, and then .idx
        os.rename(os.path.join(source, name), os.path.join(target, name))
        sync_file(target)


def _push(task: Task) -> str:
    client, path = _client(task)
    to = Ref(task["to"].encode())
    with Repository.open(task["path"]) as repository:
        tip = ObjectID(task["commit"].encode("ascii"))
        store = DiskObjectStore(repository.objects_folder)

        def update(refs: Mapping[Ref, ObjectID]) -> dict[Ref, ObjectID]:
            check_forward(repository, f"{task['to']} at {task['shown']}", refs.get(to), task)
            return {to: tip}

        try:
            result = client.send_pack(path.encode(), update, store.generate_pack_data)
        finally:
            store.close()
        for ref, trouble in _refused(result.ref_status):
            if any(word in trouble for word in _MOVED):
                raise Conflict(f"{ref} at {task['shown']}", trouble)
            raise Unavailable(task["shown"], f"it refuses {ref}: {trouble}")
    return str(task["commit"])


def check_forward(repository: Repository, what: str, remote_raw: bytes | None, task: Task) -> None:
    """Refuse to lead a ref elsewhere than further on."""
    if remote_raw is None:
        return
    remote_tip, commit = remote_raw.decode("ascii"), task["commit"]
    if not repository.knows(remote_tip):
        raise Conflict(what, f"it leads to {remote_tip}, which is not known here; fetch it first")
    if not repository.is_ancestor(remote_tip, commit):
        raise Conflict(what, f"it leads to {remote_tip}, which {commit} does not descend from")


def _refused(status: Mapping[bytes, str | None] | None) -> Iterator[tuple[str, str]]:
    for ref, trouble in (status or {}).items():
        if trouble is not None:
            yield ref.decode(errors="replace"), str(trouble)


if __name__ == "__main__":
    main()
