from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.rules.following.last_good import LastGood, ReleaseStep

ROOT = Path(__file__).resolve().parents[3]
A, B, C = ("a" * 64, "b" * 64, "c" * 64)
ONE = (ReleaseStep(b"release 1", A, b"whole 1"),)
TWO = (
    ReleaseStep(b"release 1", A),
    ReleaseStep(b"release 2", B, b"delta 2"),
    ReleaseStep(b"release 3", ""),
)


def last_good(folder: Path, part_bytes_max: int = 1_000) -> LastGood:
    return LastGood(folder / "rules", part_bytes_max=part_bytes_max)


def test_what_was_saved_is_loaded_with_its_parts(tmp_path: Path) -> None:
    folder = last_good(tmp_path)
    assert folder.load() is None
    assert folder.rollout() is None
    assert folder.save(b"rollout 1", [ONE])
    assert folder.save(b"rollout 2", [TWO, ONE])
    state = last_good(tmp_path).load()
    assert state is not None
    assert state.rollout == folder.rollout() == b"rollout 2"
    assert state.chains == (
        (TWO[0]._replace(data=b"whole 1"), TWO[1], TWO[2]),
        ONE,
    )
    assert folder.has(A)
    assert not folder.has(C)


def test_everything_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = last_good(tmp_path)
        folder.save(b"orders", [TWO, ONE])
        folder.save_pending(b"more")
    finally:
        os.umask(before)
    for path in [folder.folder, *folder.folder.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    folder = last_good(tmp_path)
    folder.save(b"orders", [ONE])
    for mode in (0o770, 0o702):
        folder.folder.chmod(mode)
        for call in (folder.load, folder.pending, lambda: folder.save(b"orders", [ONE])):
            with pytest.raises(BadValue, match=r"chmod 700"):
                call()
    folder.folder.chmod(0o755)
    assert folder.load()


def test_what_is_no_longer_needed_goes(tmp_path: Path) -> None:
    folder = last_good(tmp_path)
    folder.save(b"orders", [TWO, ONE])
    folder.save_pending(b"more")
    assert folder.pending() == b"more"
    (folder.folder / "parts" / f"{C}.new").write_bytes(b"half")
    folder.save(b"orders", [(ReleaseStep(b"release 4", C, b"whole 4"),)])
    assert [path.name for path in (folder.folder / "parts").iterdir()] == [C]
    assert folder.pending() is None


def test_one_process_writes_and_others_read(tmp_path: Path) -> None:
    one, two = last_good(tmp_path), last_good(tmp_path)
    assert one.save(b"rollout 1", [ONE])
    assert not two.save(b"rollout 2", [ONE])
    assert not two.save_pending(b"rollout 2")
    assert two.rollout() == b"rollout 1"
    one.close()
    assert two.save(b"rollout 2", [ONE])
    assert one.rollout() == b"rollout 2"


def test_a_reader_that_is_overtaken_by_the_writer_reads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = last_good(tmp_path), last_good(tmp_path)
    writer.save(b"rollout 1", [ONE])
    real, overtakes = LastGood._read, [1]

    def read(self: LastGood, name: str, bytes_max: int) -> bytes | None:
        if name.startswith("parts/") and overtakes:
            overtakes.pop()
            writer.save(b"rollout 2", [(ReleaseStep(b"release 4", C, b"whole 4"),)])
        return real(self, name, bytes_max)

    monkeypatch.setattr(LastGood, "_read", read)
    state = reader.load()
    assert state is not None
    assert (state.rollout, state.chains[0][0].data) == (b"rollout 2", b"whole 4")


def test_a_part_that_is_gone_is_told(tmp_path: Path) -> None:
    folder = last_good(tmp_path)
    folder.save(b"orders", [ONE])
    (folder.folder / "parts" / A).unlink()
    with pytest.raises(Unavailable, match=r"a part that state\.json needs"):
        folder.load()
    assert folder.rollout() == b"orders"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format":1}',
        '{"format":1,"orders":"o","chains":[]}',
        '{"format":1,"orders":"o","chains":[[]]}',
        '{"format":1,"orders":"o","chains":[[1]]}',
        '{"format":1,"orders":"o","chains":[1]}',
        '{"format":1,"orders":"o","chains":[[{"edition":"e","part":"../../etc/passwd"}]]}',
        '{"format":1,"orders":"o","chains":[[{"edition":1,"part":""}]]}',
        '{"format":1,"chains":[[{"edition":"e","part":""}]]}',
    ],
)
def test_a_state_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    folder = last_good(tmp_path)
    folder.save(b"orders", [ONE])
    (folder.folder / "state.json").write_text(text)
    with pytest.raises(BadValue):
        folder.load()


def test_the_state_of_a_newer_program_is_refused_and_new_fields_are_not(tmp_path: Path) -> None:
    folder = last_good(tmp_path)
    folder.save(b"orders", [ONE])
    path = folder.folder / "state.json"
    text = path.read_text()
    path.write_text(text.replace('"format":1', '"format":1,"later":[]'))
    assert folder.load()
    path.write_text(text.replace('"format":1', '"format":2'))
    with pytest.raises(BadValue, match="upgrade"):
        folder.load()


def test_what_is_too_large_or_no_file_is_refused(tmp_path: Path) -> None:
    folder = last_good(tmp_path)
    folder.save(b"orders", [ONE])
    with pytest.raises(BadValue, match="larger than 6 bytes"):
        last_good(tmp_path, 6).load()
    assert last_good(tmp_path, 7).load()
    part = folder.folder / "parts" / A
    part.unlink()
    part.symlink_to("/etc/hostname")
    with pytest.raises(Unavailable, match="symbolic"):
        folder.load()
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(BadValue, match="no plain file"):
        folder.load()


def test_more_steps_than_anybody_needs_are_refused(tmp_path: Path) -> None:
    folder = last_good(tmp_path)
    with pytest.raises(BadValue, match="steps"):
        folder.save(b"orders", [ONE * 65])
    with pytest.raises(BadValue, match="steps"):
        folder.save(b"orders", [ONE] * 5)
    assert folder.load() is None


# Each step of a save, and nothing after it: in a process that is killed there.
KILLED_AT_EVERY_STEP = """
import os, signal, sys
from pathlib import Path
from shutil import rmtree
from tests.rules.releases.press import Press
from tests.rules.following.node import Node

folder = Path(sys.argv[1])
press = Press()
press.release(1, a=1)
press.release(2, 1, a=2)  # by a delta
press.release(3, a=3)  # as a whole
press.order(1, 1)
steps = ["open", "write", "fsync", "replace", "unlink", "mkdir", "close"]
real = {name: getattr(os, name) for name in steps}


def kill_at(count):
    left = [count]

    def step(name):
        def call(*args, **said):
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return real[name](*args, **said)
        return call

    for name in steps:
        setattr(os, name, step(name))


def life(count, number):
    # Follows the rollout of this number, and is killed after so many steps; whether it was.
    child = os.fork()
    if not child:
        node = Node(press, folder / "rules").begin()
        press.order(number, number)
        kill_at(count)
        os._exit(0 if node.poll() else 1)
    _, how = os.waitpid(child, 0)
    assert how in (0, signal.SIGKILL), how
    return how != 0


def runs_offline():
    child = os.fork()
    if not child:
        node = Node(press, folder / "rules")
        node.line.cut = ""
        os._exit(node.begin().runs[0])
    _, how = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(how)


def before(number):
    rmtree(folder / "rules", ignore_errors=True)
    node = Node(press, folder / "rules").begin()
    for earlier in range(2, number):
        press.order(earlier, earlier)
        node.poll()
    node.close()


for number in (2, 3):
    found = []
    killed = True
    while killed:
        before(number)
        killed = life(len(found), number)
        found.append(runs_offline())
    print(number, *found)
"""


def test_a_node_that_is_killed_at_any_step_starts_offline_with_a_whole_state(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_EVERY_STEP, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        number, *numbers = [int(word) for word in line.split()]
        assert len(numbers) >= 15  # so many steps there were, and a life that came to its end
        assert numbers == sorted(numbers)  # the old state, and from some step on the new one
        assert set(numbers) == {number - 1, number}
    assert len(done.stdout.splitlines()) == 2
