"""Confinement: what a worker that is taken over tries, with and without it, each in a process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sluicegate.contracts.image_spec import parse_spec
from sluicegate.stores.images import confinement
from sluicegate.stores.images.settings import ImageWorkerSettings
from sluicegate.stores.images.workers import open_image_workers
from tests.stores.images.pictures import jpeg

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone confines")

# One line each: what is tried, given a path `into` that may be written, and a port that listens.
ATTEMPTS = {
    "socket": "import socket; socket.socket()",
    "connect": "import socket; socket.create_connection(('127.0.0.1', port), 5)",
    "unix socket": "import socket; socket.socket(socket.AF_UNIX)",
    "write": "open(into, 'w')",
    "append": "import os; os.open(into, os.O_RDONLY | os.O_CREAT)",
    "read": "open(secret).read()",
    "list": "import os; os.listdir(os.path.dirname(into))",
    "unlink": "import os; os.unlink(secret)",
    "execve": "import os; os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])",
    "fork": "import os; (os.fork() or os._exit(0)) and os.wait()",
    "subprocess": "import subprocess; subprocess.run([sys.executable, '-c', ''], check=True)",
    "kill": "import os; os.kill(os.getppid(), 0)",
    "memory": "import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
    "value = libc.process_vm_readv(os.getppid(), None, 0, None, 0, 0); "
    "assert value == 0, ctypes.get_errno()",
    "namespace": "import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
    "assert libc.unshare(0) == 0, ctypes.get_errno()",
    "limits": "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_CORE)",
}
ONLY_LANDLOCK = ("read", "list")
SCRIPT = """
import os, sys, json, ctypes, resource, socket, subprocess
from sluicegate.stores.images.confinement import confine
confined, into, secret, port, attempt = sys.argv[1:]
port = int(port)
missing = confine() if confined == "yes" else {}
try:
    exec(attempt)
except (OSError, AssertionError) as error:
    number = error.errno if isinstance(error, OSError) else error.args[0]
    print("denied" if number in (1, 13) else f"failed: {error!r}", flush=True)
else:
    print("done", flush=True)
print(json.dumps(missing), flush=True)
"""


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def attempt(tmp_path: Path, port: int) -> Callable[[str, str], str]:
    secret = tmp_path / "secret"
    secret.write_text("a token")

    def run(confined: str, code: str) -> str:
        words = [confined, str(tmp_path / "new"), str(secret), str(port), code]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.stdout, done.stderr
        return done.stdout.splitlines()[0]

    return run


def missing() -> dict[str, str]:
    """Return the protections that this machine lacks."""
    done = subprocess.run(
        [sys.executable, "-m", "sluicegate.stores.images.confinement"],
        capture_output=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    found = json.loads(done.stdout)
    assert set(found) == set(confinement.PROTECTIONS)
    return dict(found)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt_is_denied_when_confined_and_succeeds_otherwise(
    name: str, attempt: Callable[[str, str], str]
) -> None:
    lacking = missing()
    needed = confinement.LANDLOCK if name in ONLY_LANDLOCK else confinement.SECCOMP
    if lacking[needed]:
        pytest.skip(f"this machine has no {needed}: {lacking[needed]}")
    assert attempt("yes", ATTEMPTS[name]) == "denied"
    assert attempt("no", ATTEMPTS[name]) in {"done", "1"}  # 1: another program has taken its place


@pytest.mark.parametrize("name", ["connect", "write", "unlink"])
def test_landlock_denies_what_seccomp_would(name: str, attempt: Callable[[str, str], str]) -> None:
    if missing()[confinement.LANDLOCK]:
        pytest.skip("this machine has no landlock")
    without = "import sluicegate.stores.images.confinement as c; c._call_filter = None; "
    code = f"{without}c.confine(); {ATTEMPTS[name]}"
    assert attempt("no", code) == "denied"


def test_threads_and_own_memory_still_work(attempt: Callable[[str, str], str]) -> None:
    code = (
        "import threading; one = threading.Thread(target=lambda: None); one.start(); one.join(); "
        "data = bytearray(64 << 20); import decimal, difflib; open(os.__file__).read()"
    )
    assert attempt("yes", code) == "done"


def test_protection_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise RuntimeError("Unable to find libseccomp")

    monkeypatch.setattr(confinement, "_call_filter", absent)
    monkeypatch.setattr(confinement, "_restrict_files", absent)
    monkeypatch.setattr(confinement, "_set_no_new_privs", lambda: None)
    found = confinement.confine()
    assert found == {
        "no-new-privs": "",
        "seccomp": "Unable to find libseccomp",
        "landlock": "Unable to find libseccomp",
    }


def test_worker_is_confined_before_its_first_job() -> None:
    pytest.importorskip("pyvips")
    lacking = missing()

    async def story() -> None:
        workers = await open_image_workers(ImageWorkerSettings(workers=1))
        try:
            (pid,) = workers.pids
            status = Path(f"/proc/{pid}/status").read_text("utf-8")
            fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
            assert fields["NoNewPrivs"].strip() == "1"
            # 2 is a filter.
            assert fields["Seccomp"].strip() == ("0" if lacking["seccomp"] else "2")
            absent = tuple(name for name, why in lacking.items() if why)
            assert workers.stats().unconfined == absent
            for name in ("jpeg", "webp", "png", "gif", "avif"):
                made = await workers.process(jpeg(), parse_spec(f"w=60,format={name}"))
                assert made.data
        finally:
            await workers.close()

    asyncio.run(asyncio.wait_for(story(), 60))
