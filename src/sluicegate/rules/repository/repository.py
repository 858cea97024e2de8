"""The repository: files, commits and refs of a rulebook, kept by git and shared with anybody's git.

    repository = Repository.open("/srv/rules.git")
    tip = repository.tip("refs/heads/main")
    commit = repository.write({"web.yaml": text}, parents=[tip], author=..., message=..., at_us=...)
    repository.move("refs/heads/main", commit.id, expected=tip)

A commit changes nothing until a ref is moved to it, and a ref moves only from where it was believed
to be: that is the one lock, among threads, processes, and people who push. When `write` returns,
the commit is on the disk; when `move` returns, so is the ref.

All methods may be called from several threads. Reading objects takes turns; changing refs takes
turns with all of us on this machine, and honours git's locks. Ids are 40 hex digits. A `BadValue`
says what cannot be asked, a `Conflict` that somebody was faster, an `Unavailable` names the
repository and the object or the ref that is missing, damaged or held.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Final, final

from dulwich.objects import Blob, ShaFile
from dulwich.objects import Commit as GitCommit

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.contracts.rulebook import Author, Commit, FileChange
from sluicegate.rules.repository import creation, notes, remote
from sluicegate.rules.repository.commits import check_contents, commit_of, new_commit
from sluicegate.rules.repository.contents import CommitContents
from sluicegate.rules.repository.folders import find_folders
from sluicegate.rules.repository.history import History
from sluicegate.rules.repository.objects import ID_CHARS, Objects, check_id
from sluicegate.rules.repository.refs import Refs, check_ref
from sluicegate.rules.repository.settings import SUFFIXES, RepositorySettings
from sluicegate.rules.repository.trees import FILE_MODE, TreeEntry, Trees
from sluicegate.system import SystemClock

MAIN: Final = "main"
PREFIX_CHARS_MIN: Final = 6
_SHOWN_MAX: Final = 5
_SETTLED_MAX: Final = 1_000
_OUR_REFS: Final = "refs/sluicegate/"  # nobody else moves these
_FIRST_MESSAGE: Final = "Begin"
_OURSELVES: Final = Author("Sluicegate", "sluicegate@localhost")


@final
class Repository:
    """One git repository; `open` or `create` gives it."""

    def __init__(self, path: str, settings: RepositorySettings, clock: Clock) -> None:
        self.path = path
        self.settings = settings
        self._clock = clock
        self._folders = folders = find_folders(path)
        what = f"the repository {path}"
        self._objects = Objects(what, folders, object_bytes_max=settings.object_bytes_max)
        self._refs = Refs(
            what,
            folders,
            refs_max=settings.refs_max,
            lock_us_max=settings.lock_us_max,
            clock=clock,
        )
        self._trees = Trees(self._objects, settings)
        self._history = History(self._objects, folders.common, settings)
        self._contents = CommitContents(self._objects, self._trees, settings)
        self._durable: set[str] = set()  # commits that are on the disk, and all before them
        # Open packs are let go when nobody holds the repository any more.
        weakref.finalize(self, self._objects.close)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        branch: str = MAIN,
        files: Mapping[str, bytes] | None = None,
        author: Author = _OURSELVES,
        message: str = _FIRST_MESSAGE,
        at_us: int | None = None,
        settings: RepositorySettings | None = None,
        clock: Clock | None = None,
    ) -> Repository:
        """A new bare repository whose branch has one commit with these files.

        It appears whole or not at all. What is at the path already is a `BadValue`.
        """
        at = SystemClock() if clock is None else clock
        bounds = RepositorySettings() if settings is None else settings
        where = os.fspath(path)
        with creation.new_folder(where, branch) as (draft, ref):
            made = cls(draft, bounds, at)
            first = made.write(
                {} if files is None else files,
                parents=(),
                author=author,
                message=message,
                at_us=at.now_us() if at_us is None else at_us,
            )
            made.move(ref, first.id, expected=None)
            made.close()
        return cls(where, bounds, at)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        settings: RepositorySettings | None = None,
        clock: Clock | None = None,
    ) -> Repository:
        """The repository at a path: bare, or a work tree's; of that only `.git` is used."""
        return cls(
            os.fspath(path),
            RepositorySettings() if settings is None else settings,
            SystemClock() if clock is None else clock,
        )

    def close(self) -> None:
        """Let go of open files. What is asked afterwards opens them again."""
        self._objects.close()

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Refs.

    def tip(self, ref: str) -> str | None:
        """The id that a ref leads to; None where there is no such ref."""
        return self._refs.tip(ref)

    def refs(self, prefix: str) -> dict[str, str]:
        """The refs whose names begin so, and where they lead, in order."""
        return self._refs.all(prefix)

    def move(self, ref: str, to: str, *, expected: str | None) -> None:
        """Have a ref lead to a commit, if it leads to what is expected (None: is not there).

        A `Conflict` says where it leads. When this returns, the ref is on the disk. An
        `Unavailable` may come after the ref has moved: look where it leads.
        """
        self._make_durable(to, expected)
        self._refs.move(ref, to, expected=None if expected is None else check_id(ref, expected))

    def remove(self, ref: str, *, expected: str) -> None:
        """Take a ref away, if it leads to what is expected."""
        self._refs.remove(ref, expected=check_id(ref, expected))

    # Commits.

    def write(
        self,
        changes: Mapping[str, bytes | None],
        *,
        parents: Sequence[str],
        tree_of: str | None = None,
        author: Author,
        message: str,
        at_us: int,
    ) -> Commit:
        """A new commit, which no ref leads to yet. Git counts in seconds; so does its instant.

        Its files are those of `tree_of` (by default of its first parent, or none), changed: None
        takes one out. Its parents must be there.
        """
        check_contents(changes, self.settings)
        before = [self._commit(parent) for parent in parents]
        base = self._commit(tree_of) if tree_of is not None else before[0] if before else None
        blobs = {
            name: Blob.from_string(content)
            for name, content in changes.items()
            if content is not None
        }
        old_modes = self._contents.modes(base, blobs)
        edits = {
            name: TreeEntry(old_modes.get(name, FILE_MODE), blobs[name].id.decode("ascii"))
            if name in blobs
            else None
            for name in changes
        }
        return self._keep(
            list(blobs.values()),
            None if base is None else base.tree.decode("ascii"),
            edits,
            [commit.id.decode("ascii") for commit in before],
            author=author,
            at_us=at_us,
            committed_us=at_us,
            message=message,
        )

    def info(self, commit: str) -> Commit:
        """A commit: parents, author, when it was written (by its author), and message."""
        return commit_of(self._commit(commit))

    def files(
        self, commit: str, *, folder: str = "", suffixes: tuple[str, ...] = SUFFIXES
    ) -> dict[str, bytes]:
        """The files of a commit with one of these endings (none: all), in order of their names.

        Names are from the top of the repository, also where only a folder is asked for. A link, or
        a name that could do harm, is a `BadValue`: rules must not go missing without a word. Of
        other repositories that are mounted here (submodules) nothing is read; see `skipped`.
        """
        return self._contents.files(self._commit(commit), folder, suffixes)

    def skipped(self, commit: str, *, folder: str = "") -> dict[str, str]:
        """What `files` passes over although it may hold rules, and why."""
        return self._contents.skipped(self._commit(commit), folder)

    def log(self, start: str, *, until: str | None = None, count_max: int) -> list[Commit]:
        """A commit, its first parent, that one's first parent, and so on: newest first.

        With `until`, none that is it or that it descends from; so after somebody merged, what
        follows is still what is new on this line.
        """
        first = self._commit(start).id.decode("ascii")
        line = self._history.line(first, count_max)
        if until is not None:
            line = line[: self._index_of(line, self._commit(until).id.decode("ascii"))]
        return [self.info(commit) for commit in line]

    def changes(
        self,
        before: str | None,
        after: str,
        *,
        folder: str = "",
        suffixes: tuple[str, ...] = (),
    ) -> list[FileChange]:
        """The files that differ between two commits, with what they hold; None: from nothing."""
        old = None if before is None else self._commit(before)
        return self._contents.changes(old, self._commit(after), folder, suffixes)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether the newer commit is the older one, or descends from it.

        Where it was once and is no more, somebody has rewritten the history.
        """
        return self._history.is_ancestor(self._id(older), self._id(newer))

    def merge_base(self, one: str, other: str) -> str | None:
        """The newest commit that both descend from; None where they share no history."""
        return self._history.merge_base(self._id(one), self._id(other))

    def rebase(self, commit: str, onto: str, *, at_us: int | None = None) -> Commit:
        """What a commit changes since it left the history of `onto`, as one commit on top of that.

        A commit that is on top of it is returned as it is. A file changed on both sides, unless to
        the same, is a `Conflict` that names it. Author, their instant and message are kept; `at_us`
        is when it was put there, by default the author's instant, so doing it again gives the same
        commit.
        """
        change, new_base = self._commit(commit), self._commit(onto)
        commit_id, onto_id = change.id.decode("ascii"), new_base.id.decode("ascii")
        base = self._history.merge_base(commit_id, onto_id)
        if base is None:
            raise BadValue("commit", commit, f"it shares no history with {onto}; start from that")
        if base == onto_id:
            return commit_of(change)
        if base == commit_id:
            raise BadValue("commit", commit, f"what it changes is in {onto} already")
        edits = self._contents.changes_to_carry(self._commit(base), change, new_base)
        original = commit_of(change)
        return self._keep(
            [],
            new_base.tree.decode("ascii"),
            edits,
            [onto_id],
            author=original.author,
            at_us=original.at_us,
            committed_us=original.at_us if at_us is None else at_us,
            message=original.message,
        )

    def knows(self, commit: str) -> bool:
        """Whether an object of this id is there."""
        return check_id("commit", commit) in self._objects

    def find(self, shortened: str) -> str:
        """The id of the one commit whose id begins so; a `BadValue` where that is not just one."""
        prefix = shortened.lower()
        field, digits = "commit", "0123456789abcdef"
        if not PREFIX_CHARS_MIN <= len(prefix) <= ID_CHARS or prefix.strip(digits):
            raise BadValue(field, shortened, f"give {PREFIX_CHARS_MIN} to {ID_CHARS} hex digits")
        ids = [
            hex_id
            for hex_id in self._objects.with_prefix(prefix)
            if self._objects.raw(hex_id)[0] == GitCommit.type_num
        ]
        if len(ids) > 1:
            candidates = ", ".join(ids[:_SHOWN_MAX])
            raise BadValue(field, shortened, f"it may be any of {candidates}; give more digits")
        if not ids:
            raise BadValue(field, shortened, f"there is no such commit in {self.path}")
        return ids[0]

    # Notes.

    def note(self, commit: str, text: str, *, author: Author, at_us: int) -> None:
        """Append to what is noted of a commit: `git log --notes=sluicegate` shows it."""
        whole = self._id(commit)
        for _ in range(self.settings.note_tries_max):
            tip = self.tip(notes.REF)
            edits, blob = notes.append_note(self._objects, self._trees, tip, whole, text)
            if len(blob.data) > self.settings.notes_bytes_max:
                bound = self.settings.notes_bytes_max
                raise BadValue("note", text, f"note at most {bound} bytes of a commit")
            parents = [] if tip is None else [tip]
            tree = None if tip is None else self._commit(tip).tree.decode("ascii")
            noted = self._keep(
                [blob],
                tree,
                edits,
                parents,
                author=author,
                at_us=at_us,
                committed_us=at_us,
                message=notes.MESSAGE,
            )
            try:
                self.move(notes.REF, noted.id, expected=tip)
            except Conflict:
                continue
            return
        tries = self.settings.note_tries_max
        raise Unavailable(f"the repository {self.path}", f"others noted something {tries} times")

    def notes(self, commit: str) -> str:
        """What is noted of a commit; nothing if nothing is."""
        return notes.read_note(self._objects, self._trees, self.tip(notes.REF), self._id(commit))

    # Other repositories.

    def fetch(
        self, url: str, ref: str, *, into: str | None = None, timeout_us: int | None = None
    ) -> str:
        """Bring the commit that a ref leads to elsewhere, and what it needs; the commit's id.

        `into` is a ref here that follows it; it is never turned back, a `Conflict` says so.
        """
        return remote.fetch(self, url, ref, into=into, timeout_us=timeout_us)

    def push(
        self, url: str, ref: str, *, to: str | None = None, timeout_us: int | None = None
    ) -> str:
        """Have a ref elsewhere (by default of the same name) lead where it leads here.

        Never by force: where it does not lead to an ancestor of that, it is a `Conflict`.
        """
        tip, target = self.tip(check_ref(ref)), check_ref(ref if to is None else to)
        if tip is None:
            raise BadValue("ref", ref, f"there is no such ref in {self.path}")
        path = remote.local_path(url)
        if path is None:
            remote.push(self, url, tip, target, timeout_us)
            return tip
        # What is on this machine is written as safely as what is ours: it fetches, and follows.
        with Repository.open(path, settings=self.settings) as other:
            if other.has_checked_out(target):
                raise BadValue("to", target, f"it is checked out in {path}; push to another branch")
            other.fetch(os.path.abspath(self.path), ref, timeout_us=timeout_us)
            remote.follow(other, target, tip, f"it should lead to {tip}")
        return tip

    # For what stands beside this file.

    @property
    def objects_folder(self) -> str:
        """Where the objects are."""
        return self._folders.objects

    def has_checked_out(self, ref: str) -> bool:
        """Whether a work tree stands on this ref; moving it would leave that behind."""
        return remote.is_checked_out(self._folders.own, ref) and not self._folders.bare

    # Inside.

    def _commit(self, hex_id: str) -> GitCommit:
        return self._objects.commit(check_id("commit", hex_id))

    def _id(self, hex_id: str) -> str:
        return self._commit(hex_id).id.decode("ascii")

    def _make_durable(self, to: str, expected: str | None) -> None:
        """Have everything on the disk that a ref will lead to and did not yet.

        Commits of our own are there already. Those that somebody pushed are loose files that git
        left to the system: a power cut would take them from under a ref that is synced.
        """
        kind, _ = self._objects.raw(check_id("to", to))
        if kind != GitCommit.type_num:
            raise BadValue("to", to, "give the id of a commit")
        top = self._commit(to)
        self._trees.check(str(top.tree, "ascii"))
        durable: set[str | None] = {expected, *self._durable}
        if to not in durable and durable.isdisjoint(self._history.step(to).parents):
            durable.update(self._refs.all(_OUR_REFS).values())
        self._objects.sync(self._contents.added(to, durable))
        if len(self._durable) >= _SETTLED_MAX:
            self._durable = set()
        self._durable.add(to)

    def _index_of(self, line: Sequence[str], until: str) -> int:
        """How many of a line come before what `until` is or descends from."""
        if until in line:
            return line.index(until)
        # Whatever comes after an ancestor is an ancestor too.
        low, high = 0, len(line)
        while low < high:
            middle = (low + high) // 2
            if self._history.is_ancestor(line[middle], until):
                high = middle
            else:
                low = middle + 1
        return low

    def _keep(
        self,
        blobs: Sequence[ShaFile],
        tree: str | None,
        edits: Mapping[str, TreeEntry | None],
        parents: Sequence[str],
        *,
        author: Author,
        at_us: int,
        committed_us: int,
        message: str,
    ) -> Commit:
        edited, trees = self._trees.with_changes(tree, edits)
        made = new_commit(
            edited,
            parents,
            author=author,
            at_us=at_us,
            committed_us=committed_us,
            message=message,
            settings=self.settings,
        )
        self._objects.add([*blobs, *trees, made], loose_max=self.settings.loose_max)
        return commit_of(made)
