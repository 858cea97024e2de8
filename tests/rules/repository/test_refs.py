from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.repository.settings import RepositorySettings
from sluicegate.testing import HandClock
from tests.rules.repository.stories import (
    LIVE,
    MAIN,
    QUIET,
    commit,
    git,
    is_sound,
    needs_git,
    pushed,
    run_git,
    work_tree,
)

NOTHING = "0" * 40


def impatient(repository: Repository) -> Repository:
    return Repository.open(repository.path, settings=RepositorySettings(lock_us_max=0))


def first(repository: Repository) -> str:
    found = repository.tip(MAIN)
    assert found is not None
    return found


def test_a_ref_moves_from_where_it_was_believed_to_be(repository: Repository) -> None:
    old = first(repository)
    new = commit(repository, {"a.yaml": b"2"}, ref=None, on=old).id
    repository.move(LIVE, old, expected=None)
    repository.move(LIVE, new, expected=old)
    assert repository.tip(LIVE) == new


def test_a_ref_that_somebody_moved_is_a_conflict_that_says_where(repository: Repository) -> None:
    old = first(repository)
    new = commit(repository, {"a.yaml": b"2"}).id
    other = commit(repository, {"a.yaml": b"3"}, ref=None, on=old).id
    with pytest.raises(Conflict, match=f"{MAIN}.*{new}"):
        repository.move(MAIN, other, expected=old)
    with pytest.raises(Conflict, match=new):
        repository.move(MAIN, other, expected=None)
    with pytest.raises(Conflict, match=new):
        repository.move(MAIN, new, expected=old)  # though it is there already
    with pytest.raises(Conflict, match="not there"):
        repository.move(LIVE, other, expected=old)
    with pytest.raises(Conflict, match=new):
        repository.remove(MAIN, expected=old)
    assert repository.refs("refs/") == {MAIN: new}


def test_a_ref_is_removed_if_it_is_where_it_was_believed_to_be(repository: Repository) -> None:
    repository.move("refs/sluicegate/proposals/1", first(repository), expected=None)
    repository.remove("refs/sluicegate/proposals/1", expected=first(repository))
    assert repository.refs("refs/sluicegate/") == {}
    assert repository.tip("refs/sluicegate/proposals/1") is None
    with pytest.raises(Conflict, match="not there"):
        repository.remove("refs/sluicegate/proposals/1", expected=first(repository))
    assert not Path(repository.path, "refs", "sluicegate", "proposals").exists()


def test_refs_are_listed_by_how_they_begin(repository: Repository) -> None:
    tip = first(repository)
    for name in ("proposals/2", "proposals/10", "live", "proposal"):
        repository.move(f"refs/sluicegate/{name}", tip, expected=None)
    assert list(repository.refs("refs/sluicegate/proposals/")) == [
        "refs/sluicegate/proposals/10",
        "refs/sluicegate/proposals/2",
    ]
    assert len(repository.refs("refs/sluicegate/prop")) == 3
    assert repository.refs("refs/nothing/") == {}
    for prefix in ("", "objects", "refs/../", "refs/a\0"):
        with pytest.raises(BadValue, match="prefix"):
            repository.refs(prefix)


def test_too_many_refs_are_not_listed(repository: Repository) -> None:
    few = Repository.open(repository.path, settings=RepositorySettings(refs_max=1))
    assert len(few.refs("refs/")) == 1
    repository.move(LIVE, first(repository), expected=None)
    with pytest.raises(BadValue, match="narrow"):
        few.refs("refs/")


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "main",
        "HEAD",
        "refs/main",
        "refs/heads/",
        "refs/heads/a..b",
        "refs/heads/../../config",
        "refs/heads/a.lock",
        "refs/heads/.a",
        "refs/heads/a b",
        "refs/heads/a\nb",
        "refs/heads/a\0b",
        "refs/heads//a",
        "refs/heads/a\\b",
        "refs/heads/\ud800",
    ],
)
def test_a_name_that_git_could_not_keep_is_refused(repository: Repository, ref: str) -> None:
    with pytest.raises(BadValue, match="ref"):
        repository.move(ref, first(repository), expected=None)
    with pytest.raises(BadValue, match="ref"):
        repository.remove(ref, expected=first(repository))
    if ref != "HEAD":
        with pytest.raises(BadValue, match="ref"):
            repository.tip(ref)


def test_a_ref_leads_only_to_a_commit_that_is_there(repository: Repository) -> None:
    with pytest.raises(Unavailable, match="missing"):
        repository.move(LIVE, "1" * 40, expected=None)
    with pytest.raises(BadValue, match="hex"):
        repository.move(LIVE, "main", expected=None)
    with pytest.raises(BadValue, match="hex"):
        repository.move(MAIN, first(repository), expected="main")
    assert repository.tip(LIVE) is None


def test_one_ref_may_be_in_the_way_of_another(repository: Repository) -> None:
    tip = first(repository)
    with pytest.raises(BadValue, match="refs/heads/main is in its way"):
        repository.move("refs/heads/main/x", tip, expected=None)
    repository.move("refs/heads/a/b", tip, expected=None)
    with pytest.raises(BadValue, match="refs/heads/a/b is in its way"):
        repository.move("refs/heads/a", tip, expected=None)


@needs_git
def test_a_packed_ref_may_be_in_the_way_too(repository: Repository) -> None:
    tip = first(repository)
    repository.move("refs/heads/a/b", tip, expected=None)
    git(repository.path, "pack-refs", "--all")
    assert not Path(repository.path, "refs", "heads", "main").exists()
    for ref in ("refs/heads/main/x", "refs/heads/a"):
        with pytest.raises(BadValue, match="in its way"):
            repository.move(ref, tip, expected=None)
    repository.remove("refs/heads/a/b", expected=tip)
    repository.move("refs/heads/a", tip, expected=None)
    assert git(repository.path, "rev-parse", "a") == tip


def test_a_folder_without_refs_is_in_nobodys_way(repository: Repository) -> None:
    Path(repository.path, "refs", "heads", "a", "b").mkdir(parents=True)
    repository.move("refs/heads/a", first(repository), expected=None)
    assert repository.tip("refs/heads/a") == first(repository)


@needs_git
def test_packed_refs_are_read_moved_and_removed(repository: Repository) -> None:
    old = first(repository)
    repository.move(LIVE, old, expected=None)
    git(repository.path, "tag", "-a", "v1", "-m", "one", "main")
    git(repository.path, "pack-refs", "--all")
    assert repository.tip(MAIN) == repository.tip(LIVE) == old
    assert set(repository.refs("refs/")) == {MAIN, LIVE, "refs/tags/v1"}
    new = commit(repository, {"a.yaml": b"2"}).id  # beside its line, which is old now
    assert repository.tip(MAIN) == git(repository.path, "rev-parse", "main") == new
    tag = repository.tip("refs/tags/v1")
    assert tag is not None
    repository.remove("refs/tags/v1", expected=tag)
    repository.remove(MAIN, expected=new)
    assert git(repository.path, "for-each-ref", "--format=%(refname)") == LIVE
    assert "^" not in Path(repository.path, "packed-refs").read_text()
    assert repository.refs("refs/") == {LIVE: old}
    assert is_sound(repository)


@needs_git
def test_a_packed_ref_that_git_moves_is_seen_at_once(repository: Repository) -> None:
    old = first(repository)
    new = commit(repository, {"a.yaml": b"2"}, ref=None, on=old).id
    git(repository.path, "pack-refs", "--all")
    for before, after in ((old, new), (new, old), (old, new)):
        assert repository.tip(MAIN) == before
        git(repository.path, "update-ref", MAIN, after)
        git(repository.path, "pack-refs", "--all")
    # It is compared with what is there now, not with what was read before.
    with pytest.raises(Conflict, match=new):
        repository.move(MAIN, new, expected=old)


@needs_git
def test_an_unborn_branch_has_no_tip(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "-b", "main", "rules.git")
    repository = Repository.open(tmp_path / "rules.git")
    assert repository.tip("HEAD") is None
    assert repository.refs("refs/") == {}
    made = commit(repository, {"a.yaml": b"1"})
    assert repository.tip("HEAD") == made.id
    assert is_sound(repository)


@needs_git
def test_a_symbolic_ref_is_followed_and_not_moved(repository: Repository) -> None:
    git(repository.path, "symbolic-ref", "refs/heads/trunk", MAIN)
    assert repository.tip("refs/heads/trunk") == first(repository)
    with pytest.raises(BadValue, match=MAIN):
        repository.move("refs/heads/trunk", first(repository), expected=first(repository))
    with pytest.raises(BadValue, match=MAIN):
        repository.remove("refs/heads/trunk", expected=first(repository))
    Path(repository.path, "refs/heads/trunk").write_text("ref: refs/heads/trunk\n")
    with pytest.raises(Unavailable, match="leads to itself"):
        repository.tip("refs/heads/trunk")


@pytest.mark.parametrize("text", ["", "hello\n", "1" * 39, "\0" * 41])
def test_a_damaged_ref_is_told_and_not_taken_for_none(repository: Repository, text: str) -> None:
    Path(repository.path, MAIN).write_text(text)
    with pytest.raises(Unavailable, match=rf"rules\.git.*{MAIN}.*damaged"):
        repository.tip(MAIN)
    with pytest.raises(Unavailable, match="damaged"):
        repository.move(MAIN, "1" * 40, expected=None) if not text else repository.tip(MAIN)


def test_damaged_packed_refs_are_told(repository: Repository) -> None:
    Path(repository.path, "packed-refs").write_text("# pack-refs with: peeled\nnonsense\n")
    with pytest.raises(Unavailable, match="packed-refs is damaged"):
        repository.tip(LIVE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_ref_that_may_not_be_read_is_not_taken_for_none(repository: Repository) -> None:
    os.chmod(Path(repository.path, MAIN), 0)
    with pytest.raises(Unavailable, match=MAIN):
        repository.tip(MAIN)


def test_a_lock_of_somebody_else_is_waited_for_and_then_told(repository: Repository) -> None:
    lock = Path(repository.path, f"{MAIN}.lock")
    lock.write_text("")
    new = commit(repository, {"a.yaml": b"2"}, ref=None, on=first(repository)).id
    with pytest.raises(Unavailable, match=r"main\.lock is held.*can be removed"):
        impatient(repository).move(MAIN, new, expected=first(repository))
    assert lock.exists()
    waiting = threading.Thread(
        target=repository.move, args=(MAIN, new), kwargs={"expected": first(repository)}
    )
    waiting.start()
    lock.unlink()
    waiting.join(60)
    assert repository.tip(MAIN) == new


def test_how_long_a_lock_is_waited_for_is_told_by_the_clock(repository: Repository) -> None:
    clock = HandClock()
    patient = Repository.open(repository.path, clock=clock)
    lock = Path(repository.path, f"{MAIN}.lock")
    lock.write_text("")
    errors: list[Exception] = []

    def move() -> None:
        try:
            patient.remove(MAIN, expected=first(repository))
        except Unavailable as error:
            errors.append(error)

    waiting = threading.Thread(target=move)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    clock.advance(us=patient.settings.lock_us_max)
    waiting.join(60)
    assert len(errors) == 1


def test_a_lock_of_packed_refs_is_honoured(repository: Repository) -> None:
    tip = first(repository)
    Path(repository.path, "packed-refs").write_text(f"{tip} {LIVE}\n")
    Path(repository.path, "packed-refs.lock").write_text("")
    with pytest.raises(Unavailable, match=r"packed-refs\.lock is held"):
        impatient(repository).remove(LIVE, expected=tip)
    assert repository.tip(LIVE) == tip
    assert not Path(repository.path, f"{LIVE}.lock").exists()


def test_the_lock_of_one_of_us_that_died_is_taken_away(repository: Repository) -> None:
    tip = first(repository)
    new = commit(repository, {"a.yaml": b"2"}, ref=None, on=tip).id
    # As it is left by one who is killed between the lock and the move.
    ours = Path(repository.path, "sluicegate", "refs%2Fheads%2Fmain.twin")
    ours.write_text(f"{new}\n")
    os.link(ours, Path(repository.path, f"{MAIN}.lock"))
    impatient(repository).move(MAIN, new, expected=tip)
    assert repository.tip(MAIN) == new
    assert [path.name for path in Path(repository.path, "sluicegate").iterdir()] == ["turn"]


def test_a_lock_beside_an_old_twin_of_ours_is_not_taken_away(repository: Repository) -> None:
    ours = Path(repository.path, "sluicegate", "refs%2Fheads%2Fmain.twin")
    ours.write_text("")
    Path(repository.path, f"{MAIN}.lock").write_text("")
    with pytest.raises(Unavailable, match="held"):
        impatient(repository).remove(MAIN, expected=first(repository))
    assert Path(repository.path, f"{MAIN}.lock").exists()


def test_a_process_that_was_forked_meanwhile_holds_nothing(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[int] = []
    opened = os.open

    def copied(path: str, *rest: int, **named: int) -> int:
        handle = opened(path, *rest, **named)
        if str(path).endswith("turn"):
            copies.append(os.dup(handle))  # as a fork has one
        return handle

    monkeypatch.setattr(os, "open", copied)
    try:
        for number in range(2):
            impatient(repository).move(f"{LIVE}/{number}", first(repository), expected=None)
    finally:
        for handle in copies:
            os.close(handle)
    assert len(copies) == 2


def test_what_the_dead_left_is_taken_away_by_whoever_comes_next(repository: Repository) -> None:
    new = commit(repository, {"a.yaml": b"2"}, ref=None, on=first(repository)).id
    folder = Path(repository.path, "sluicegate")
    (folder / "new-abc").write_text("")
    ours = folder / "refs%2Fheads%2Fmain.twin"
    ours.write_text("")
    os.link(ours, Path(repository.path, f"{MAIN}.lock"))
    repository.move(LIVE, new, expected=None)  # another one
    assert not Path(repository.path, f"{MAIN}.lock").exists()  # nobody's push has to wait for us
    assert [path.name for path in folder.iterdir()] == ["turn"]


@needs_git
def test_while_we_hold_a_ref_git_cannot_move_it(repository: Repository) -> None:
    old = first(repository)
    new = commit(repository, {"a.yaml": b"2"}, ref=None, on=old).id
    results: list[subprocess.CompletedProcess[str]] = []
    rename = os.rename

    def ask_git_first(source: str, target: str) -> None:
        if str(source).endswith("main.lock"):
            results.append(run_git(repository.path, "update-ref", MAIN, old, old))
        rename(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", ask_git_first)
        repository.move(MAIN, new, expected=old)
    (result,) = results
    assert result.returncode != 0
    assert "main.lock" in result.stderr
    assert repository.tip(MAIN) == new


@needs_git
def test_while_git_holds_a_ref_we_wait_and_see_what_it_did(repository: Repository) -> None:
    old = first(repository)
    new = commit(repository, {"a.yaml": b"2"}, ref=None, on=old).id
    mine = commit(repository, {"a.yaml": b"3"}, ref=None, on=old).id
    with subprocess.Popen(
        ["git", "-C", repository.path, "update-ref", "--stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=QUIET,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(f"start\nupdate {MAIN} {new} {old}\nprepare\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "start: ok\n"
        assert holder.stdout.readline() == "prepare: ok\n"
        with pytest.raises(Unavailable, match="held"):
            impatient(repository).move(MAIN, mine, expected=old)
        errors: list[Exception] = []

        def move() -> None:
            try:
                repository.move(MAIN, mine, expected=old)
            except Conflict as error:
                errors.append(error)

        waiting = threading.Thread(target=move)
        waiting.start()
        holder.stdin.write("commit\n")
        holder.stdin.close()
        waiting.join(60)
    assert new in str(errors[0])
    assert repository.tip(MAIN) == new


def test_a_very_long_name_has_its_lock_too(repository: Repository) -> None:
    ref = "refs/sluicegate/" + "/".join(["ä" * 60] * 4)
    repository.move(ref, first(repository), expected=None)
    assert repository.tip(ref) == first(repository)
    assert list(repository.refs("refs/sluicegate/")) == [ref]
    repository.remove(ref, expected=first(repository))


def test_a_ref_that_cannot_be_written_is_unavailable(repository: Repository) -> None:
    def no_room(_from: str, _to: str) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", no_room)
        with pytest.raises(Unavailable, match=r"rules\.git.*No space"):
            repository.remove(MAIN, expected=first(repository))
    assert sorted(os.listdir(Path(repository.path, "refs", "heads"))) == ["main"]


@pytest.fixture
def disk_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is asked of the disk from now on, in order: a sync, or a move to a name."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("the names of open files cannot be told here")
    disk_calls: list[tuple[str, str]] = []
    rename, fsync, link = os.rename, os.fsync, os.link

    def record_fsync(handle: int) -> None:
        disk_calls.append(("sync", os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def record_rename(source: str, target: str) -> None:
        disk_calls.append(("move", f"{source} {target}"))
        rename(source, target)

    def record_link(source: str, target: str) -> None:
        disk_calls.append(("link", f"{source} {target}"))
        link(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "rename", record_rename)
    monkeypatch.setattr(os, "link", record_link)
    return disk_calls


def test_what_a_ref_leads_to_is_on_the_disk_before_the_ref(
    repository: Repository, disk_calls: list[tuple[str, str]]
) -> None:
    made = commit(repository, {"new/x.yaml": b"x"})
    assert repository.tip(MAIN) == made.id
    moves = {
        target: (source, at)
        for at, (what, names) in enumerate(disk_calls)
        if what == "move"
        for source, target in [names.split(" ")]
    }
    ref_moved = moves[os.path.join(repository.path, MAIN)][1]
    objects = [target for target in moves if "/objects/" in target]
    assert len(objects) == 4  # a file, two folders, a commit
    for target in objects:
        source, moved = moves[target]
        assert ("sync", source) in disk_calls[:moved]
        assert ("sync", os.path.dirname(target)) in disk_calls[moved:ref_moved]
    (locked,) = [at for at, (what, _) in enumerate(disk_calls) if what == "link"]
    aside, twin = disk_calls[locked - 1][1].split(" ")
    assert disk_calls[locked - 2] == ("sync", aside)  # the new value, before anybody can see it
    assert disk_calls[locked][1] == f"{twin} {repository.path}/{MAIN}.lock"
    assert disk_calls[-1] == ("sync", os.path.join(repository.path, "refs", "heads"))
    assert disk_calls.index(("sync", os.path.join(repository.path, "objects"))) < ref_moved


@needs_git
def test_what_a_person_pushed_is_on_the_disk_before_our_ref_leads_there(
    repository: Repository, tmp_path: Path, disk_calls: list[tuple[str, str]]
) -> None:
    repository.move(LIVE, first(repository), expected=None)
    git(repository.path, "config", "--unset", "core.fsync")
    clone = work_tree(repository, tmp_path / "clone")
    old = first(repository)
    pushed(clone, {"x/y.yaml": "one"})
    by_hand = pushed(clone, {"x/z.yaml": "two"})
    disk_calls.clear()
    repository.move(LIVE, by_hand, expected=old)
    moved = disk_calls.index(("move", f"{repository.path}/{LIVE}.lock {repository.path}/{LIVE}"))
    brought = git(repository.path, "rev-list", "--objects", "--no-object-names", MAIN, f"^{old}")
    assert len(brought.split()) == 8
    for hex_id in brought.split():
        path = os.path.join(repository.path, "objects", hex_id[:2], hex_id[2:])
        assert ("sync", path) in disk_calls[:moved]
        assert ("sync", os.path.dirname(path)) in disk_calls[:moved]
    disk_calls.clear()
    fresh = Repository.open(repository.path)  # what a ref of ours leads to is known to be safe
    fresh.move("refs/sluicegate/proposals/1", by_hand, expected=None)
    assert not any("/objects" in name for _, name in disk_calls)  # once is enough


@needs_git
def test_a_new_repository_has_git_sync_what_is_pushed(repository: Repository) -> None:
    assert git(repository.path, "config", "core.fsync") == "committed,reference"
