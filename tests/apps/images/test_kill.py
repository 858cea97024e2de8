"""Kill -9 of the whole service, with the real library, while it serves, uploads and collects."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import sys
import threading
import time
from hashlib import sha256
from pathlib import Path

import pytest

from sluicegate.apps.images.signatures import path_of
from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.pictures import picture
from tests.apps.images.process import ImagesProcess, origin_in_thread, stores
from tests.apps.images.test_crowd import RealImages
from tests.engines.child import PATIENCE_S, run_to_end, until
from tests.prove.seeds import seeds

CALLERS = 6
URLS = 15
CONTENTS = 60_000  # so that nearly all that is done is new, and written
ENOUGH = 8
SPECS = ("w=8,format=png", "w=16,format=webp", "w=12,h=12,fit=cover,format=jpeg")
COLLECTING = ("--collect-every-s", "0.5", "--collect-grace-s", "3", "--fresh-s", "0.2")


class Callers:
    """Threads that ask for all that a service does, until it is gone; what it acknowledged."""

    def __init__(self, server: ImagesProcess, origin: OriginServer, seed: int) -> None:
        self.uploads: dict[str, bytes] = {}
        self.served = 0
        self.wrong: list[str] = []
        self._server, self._origin = server, origin
        self._threads = [
            threading.Thread(target=self._call, args=(random.Random(seed * 100 + at),))
            for at in range(CALLERS)
        ]
        for thread in self._threads:
            thread.start()

    def have_much(self) -> bool:
        return self.served > ENOUGH and len(self.uploads) > ENOUGH

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _call(self, chance: random.Random) -> None:
        while True:
            try:
                self._one(chance)
            except (OSError, http.client.HTTPException):
                return  # it was killed

    def _one(self, chance: random.Random) -> None:
        server, body = self._server, picture(chance.randrange(CONTENTS))
        name = f"/{chance.randrange(URLS)}.png"
        kind = chance.random()
        if kind < 0.2:
            self._origin.pages[name] = Page(body)  # it changes, and the old content may go
        elif kind < 0.4:
            answer = server.get(
                "/v1/images", method="POST", body=body, content_type="application/octet-stream"
            )
            if answer.status == 200:
                self.uploads[json.loads(answer.body)["id"]] = body
            elif answer.status != 503:
                self.wrong.append(f"upload: {answer.status} {answer.body!r}")
        else:
            url = self._origin.url(name)
            self._origin.pages.setdefault(name, Page(body))
            answer = server.get(path_of(chance.choice(SPECS), url))
            if answer.status == 200:
                self.served += 1
            elif answer.status != 503:
                self.wrong.append(f"{url}: {answer.status} {answer.body!r}")


def workers_of(pid: int) -> list[int]:
    """The processes that a process started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(one) for one in found]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_after_kills_every_entry_points_to_a_blob_whose_hash_is_right(
    tmp_path: Path, seed: int
) -> None:
    survive_kills(tmp_path, seed, 3)


def survive_kills(folder: Path, seed: int, lives: int, blobs: str = "") -> None:
    """Kill the service so many times, and have all verified that it has in these stores."""
    chance = random.Random(seed)
    uploads: dict[str, bytes] = {}
    served = 0
    flags = (*COLLECTING, *(("--blobs", blobs) if blobs else ()))
    with origin_in_thread() as origin:
        for life in range(lives):
            server = RealImages(folder, *flags)
            workers = workers_of(server.child.pid)
            assert workers
            callers = Callers(server, origin, seed * 10 + life)
            until(callers.have_much, "work done for all callers", children=[server.child])
            time.sleep(2.0 * chance.random())  # it works on, for so long
            os.kill(server.child.pid, signal.SIGKILL)
            callers.join()
            server.child.kill()
            # A worker ends with whom it serves; one that is busy when it has done its job.
            until(lambda: not any(map(is_alive, workers)), "the end of its workers")  # noqa: B023
            assert callers.wrong == []
            uploads |= callers.uploads
            served += callers.served
            check(folder, blobs)
        assert served > lives * ENOUGH
        with RealImages(folder, *flags) as server:
            for digest, body in uploads.items():
                assert sha256(body).hexdigest() == digest
                assert server.get(f"/img/w=9,format=png/{digest}").status == 200


def check(folder: Path, blobs: str = "") -> None:
    """Have the command verify all of it."""
    places = (*stores(folder), *(("--blobs", blobs) if blobs else ()))
    command = [sys.executable, "-m", "sluicegate.cli", "images", "gc", "--check", *places]
    done = run_to_end(command)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
