from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from dulwich.object_store import DiskObjectStore
from dulwich.objects import Blob
from dulwich.repo import Repo
from dulwich.server import BackendRepo, DictBackend
from dulwich.web import make_wsgi_chain

from sluicegate.contracts.errors import BadValue, Conflict, SluicegateError, Unavailable
from sluicegate.rules.repository import carrier, remote
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.repository.settings import RepositorySettings
from tests.rules.repository.stories import (
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

MIRROR = "refs/heads/mirror"


@pytest.fixture
def other(tmp_path: Path, repository: Repository) -> Repository:
    """A copy as it is made by a person: a bare clone."""
    git(tmp_path, "clone", "--quiet", "--bare", repository.path, "other.git")
    return Repository.open(tmp_path / "other.git")


def first(repository: Repository) -> str:
    found = repository.tip(MAIN)
    assert found is not None
    return found


@needs_git
def test_what_is_fetched_is_there_and_a_ref_may_follow(
    repository: Repository, other: Repository
) -> None:
    made = commit(other, {"new/c.yaml": b"c"}).id
    assert repository.fetch(other.path, MAIN) == made
    assert repository.tip(MAIN) != made  # it is only told where to, if somebody says so
    assert repository.files(made)["new/c.yaml"] == b"c"
    assert repository.fetch(f"file://{other.path}", MAIN, into=MIRROR) == made
    assert repository.tip(MIRROR) == made
    assert repository.fetch(other.path, MAIN, into=MAIN) == made
    assert repository.tip(MAIN) == made
    assert is_sound(repository)
    left = [name for name in os.listdir(Path(repository.path, "objects")) if "tmp" in name]
    assert left == []


@needs_git
def test_fetching_again_brings_nothing(repository: Repository, other: Repository) -> None:
    made = commit(other, {"c.yaml": b"c"}).id
    packs = Path(repository.path, "objects", "pack")
    for _ in range(2):
        assert repository.fetch(other.path, MAIN, into=MAIN) == made
        assert len(list(packs.glob("*.idx"))) == 1


@needs_git
def test_a_ref_that_follows_is_never_turned_back(repository: Repository, other: Repository) -> None:
    theirs = commit(other, {"a.yaml": b"theirs"}).id
    ours = commit(repository, {"a.yaml": b"ours"}).id
    with pytest.raises(Conflict, match=rf"{MAIN}.*{ours}.*{theirs}"):
        repository.fetch(other.path, MAIN, into=MAIN)
    assert repository.tip(MAIN) == ours


@needs_git
def test_what_is_pushed_is_there_and_sound(repository: Repository, other: Repository) -> None:
    made = commit(repository, {"new/c.yaml": b"c"}).id
    assert repository.push(other.path, MAIN) == made
    assert other.tip(MAIN) == made
    assert repository.push(other.path, MAIN, to="refs/heads/copy") == made
    assert repository.push(other.path, MAIN) == made  # once more, to no effect
    assert other.refs("refs/") == {"refs/heads/copy": made, MAIN: made}
    assert is_sound(other)


@needs_git
def test_a_push_never_forces(repository: Repository, other: Repository) -> None:
    theirs = commit(other, {"a.yaml": b"theirs"}).id
    commit(repository, {"a.yaml": b"ours"})
    with pytest.raises(Conflict, match=theirs):
        repository.push(other.path, MAIN)
    assert other.tip(MAIN) == theirs


@needs_git
def test_a_branch_that_somebody_works_on_is_not_moved_under_them(
    repository: Repository, tmp_path: Path
) -> None:
    clone = work_tree(repository, tmp_path / "clone")
    made = commit(repository, {"c.yaml": b"c"}).id
    with pytest.raises(BadValue, match="checked out"):
        repository.push(str(clone), MAIN)
    repository.push(str(clone), MAIN, to="refs/heads/incoming")
    assert git(clone, "rev-parse", "incoming") == made
    assert git(clone, "status", "--porcelain") == ""


@needs_git
def test_what_is_not_there_is_told(repository: Repository, other: Repository) -> None:
    with pytest.raises(BadValue, match="no such ref"):
        repository.fetch(other.path, "refs/heads/none")
    with pytest.raises(BadValue, match="no such ref"):
        repository.push(other.path, "refs/heads/none")
    with pytest.raises(SluicegateError, match="nowhere"):
        repository.fetch(f"{other.path}/nowhere", MAIN)
    with pytest.raises(BadValue, match="ref"):
        repository.fetch(other.path, "main")
    with pytest.raises(BadValue, match="ref"):
        repository.fetch(other.path, MAIN, into="main")


@pytest.mark.parametrize(
    "url", ["", "-oProxyCommand=x", "ext::sh", "ext://x", "ftp://x/y", "a\nb", "a\0b", "x\x1b"]
)
def test_what_is_no_url_of_a_repository_is_refused(repository: Repository, url: str) -> None:
    with pytest.raises((BadValue, Unavailable)):
        repository.fetch(url, MAIN, timeout_us=5_000_000)
    with pytest.raises((BadValue, Unavailable)):
        repository.push(url, MAIN, timeout_us=5_000_000)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/srv/rules.git", "/srv/rules.git"),
        ("file:///srv/my%20rules.git", "/srv/my rules.git"),
        ("./a:b", os.path.abspath("a:b")),
        ("git@example.org:rules.git", None),
        ("example.org:rules.git", None),
        ("https://example.org/rules.git", None),
        ("git://example.org/rules.git", None),
        ("ssh://git@example.org/rules.git", None),
    ],
)
def test_a_url_leads_to_this_machine_or_away_from_it(url: str, path: str | None) -> None:
    assert remote.local_path(url) == path


@needs_git
def test_a_pack_that_lacks_something_is_not_taken(
    repository: Repository, other: Repository
) -> None:
    made = commit(other, {"c.yaml": b"unheard of"}).id
    blob = git(other.path, "rev-parse", "main:c.yaml")
    os.unlink(Path(other.path, "objects", blob[:2], blob[2:]))
    with pytest.raises(Unavailable):
        repository.fetch(other.path, MAIN, into=MAIN)
    assert repository.tip(MAIN) == first(repository) != made
    assert not repository.knows(made)
    assert is_sound(repository)


@pytest.mark.parametrize("lacks", ["parent", "file"])
def test_what_an_object_of_a_pack_needs_must_be_there(repository: Repository, lacks: str) -> None:
    base = first(repository)
    packing = Repository.open(repository.path, settings=RepositorySettings(loose_max=0))
    commit(packing, {"c.yaml": b"a: 1\n"}, on=base, ref=None)  # the file is a loose one
    packing.close()
    with closing(DiskObjectStore(repository.objects_folder)) as store:
        (pack,) = store.packs
        carrier.check_whole(store, pack)
        missing_id = base if lacks == "parent" else Blob.from_string(b"a: 1\n").id.decode()
        os.unlink(Path(repository.objects_folder, missing_id[:2], missing_id[2:]))
        with pytest.raises(Unavailable, match=f"needs {missing_id}"):
            carrier.check_whole(store, pack)


@needs_git
def test_what_a_fetch_may_bring_is_bounded(repository: Repository, other: Repository) -> None:
    commit(other, {"c.yaml": os.urandom(5_000)})
    small = Repository.open(repository.path, settings=RepositorySettings(remote_bytes_max=4_096))
    with pytest.raises(BadValue, match="remote_bytes_max"):
        small.fetch(other.path, MAIN)


def test_whoever_does_not_answer_is_given_up(repository: Repository) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"git://127.0.0.1:{silent.getsockname()[1]}/rules.git"
        started = time.monotonic()
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1.*within 1\.5 s"):
            repository.fetch(url, MAIN, timeout_us=1_500_000)
        with pytest.raises(Unavailable, match="within"):
            repository.push(url, MAIN, timeout_us=1_000_000)
        assert time.monotonic() - started < 30
    assert [name for name in os.listdir(Path(repository.path, "objects")) if "tmp" in name] == []


def test_whoever_refuses_is_told(repository: Repository) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(Unavailable, match=str(port)):
        repository.fetch(f"git://127.0.0.1:{port}/rules.git", MAIN)


@pytest.fixture
def daemon(other: Repository) -> Iterator[str]:
    """The URL of the copy, behind git's own server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            *("git", "daemon", "--listen=127.0.0.1", f"--port={port}", "--export-all"),
            *("--enable=receive-pack", f"--base-path={Path(other.path).parent}", "--reuseaddr"),
        ],
        env=QUIET,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    pytest.skip("there is no git daemon")
                threading.Event().wait(0.02)
        yield f"git://127.0.0.1:{port}/other.git"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


@needs_git
def test_commits_come_and_go_through_a_real_server(
    repository: Repository, other: Repository, daemon: str
) -> None:
    theirs = commit(other, {"new/c.yaml": b"c"}).id
    assert repository.fetch(daemon, MAIN, into=MAIN) == theirs
    ours = commit(repository, {"a.yaml": b"ours"}).id
    assert repository.push(daemon, MAIN) == ours
    assert other.tip(MAIN) == ours
    assert repository.push(daemon, MAIN, to="refs/heads/copy") == ours
    assert is_sound(other)
    assert is_sound(repository)


@needs_git
def test_a_real_server_is_never_forced(
    repository: Repository, other: Repository, daemon: str
) -> None:
    theirs = commit(other, {"a.yaml": b"theirs"}).id
    commit(repository, {"a.yaml": b"ours"})
    with pytest.raises(Conflict, match=f"{MAIN} at {daemon}.*{theirs}.*fetch"):
        repository.push(daemon, MAIN)
    repository.fetch(daemon, MAIN)
    with pytest.raises(Conflict, match=f"{theirs}.*does not descend"):
        repository.push(daemon, MAIN)
    with pytest.raises(Conflict, match="does not descend"):
        repository.fetch(daemon, MAIN, into=MAIN)
    assert other.tip(MAIN) == theirs


@needs_git
def test_what_a_server_refuses_is_told(
    repository: Repository, other: Repository, daemon: str
) -> None:
    hook = Path(other.path, "hooks", "pre-receive")
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    commit(repository, {"a.yaml": b"ours"})
    with pytest.raises(Unavailable, match=f"refuses {MAIN}.*declined"):
        repository.push(daemon, MAIN)
    with pytest.raises(BadValue, match="no such ref"):
        repository.fetch(daemon, "refs/heads/none")
    with pytest.raises(Unavailable, match="nowhere"):
        repository.fetch(daemon.replace("other", "nowhere"), MAIN)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
        pass


@pytest.fixture
def guarded(other: Repository) -> Iterator[Callable[[str], str]]:
    """URLs of the copy over HTTP, for whoever knows the password."""
    repo = Repo(other.path)
    repos: dict[str, BackendRepo] = {"/other.git": repo}
    app = make_wsgi_chain(DictBackend(repos))
    credentials = "Basic " + base64.b64encode(b"ann:s3cr%t/x").decode()

    def guard(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        if environ.get("HTTP_AUTHORIZATION") != credentials:
            start("401 Unauthorized", [("WWW-Authenticate", 'Basic realm="x"')])
            return [b"who are you?"]
        return app(environ, start)

    server = make_server("127.0.0.1", 0, guard, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield lambda who: f"http://{who}127.0.0.1:{server.server_port}/other.git"
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()
        repo.close()


@needs_git
def test_who_connects_is_in_the_url_and_in_no_message(
    repository: Repository, other: Repository, guarded: Callable[[str], str]
) -> None:
    theirs = commit(other, {"c.yaml": b"c"}).id
    assert repository.fetch(guarded("ann:s3cr%25t%2Fx@"), MAIN) == theirs
    for who in ("ann:wr0ng%2Fone@", ""):
        with pytest.raises(Unavailable) as error:
            repository.fetch(guarded(who), MAIN)
        for secret in ("wr0ng", "ann"):
            assert secret not in str(error.value)
        assert guarded("") in str(error.value)


def test_who_connects_is_taken_out_of_whatever_is_said() -> None:
    url = "https://ann:s3%2Fcret@example.org/x.git?key=hidden"
    text = f"{url}: no ann:s3%2Fcret, no s3%2Fcret, no s3/cret, no key=hidden; {'x' * 999}"
    message = remote.without_secrets(text, url)
    assert message.startswith("https://example.org/x.git: no ***, no ***, no ***, no ***; x")
    assert len(message) == 500
    assert remote.without_secrets("git@example.org:x.git: no", "git@example.org:x.git") == (
        "git@example.org:x.git: no"
    )


@needs_git
def test_the_password_is_in_no_process_list(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, Any]] = []
    popen: Any = subprocess.Popen

    def watched(arguments: list[str], *, env: Mapping[str, str], **named: Any) -> Any:
        calls.append((arguments, env))
        return popen(arguments, env=env, **named)

    monkeypatch.setattr(subprocess, "Popen", watched)
    with pytest.raises(Unavailable) as error:
        repository.fetch("http://ann:s3cret@127.0.0.1:1/x.git?key=hidden#z", MAIN)
    assert len(calls) == 1
    for text in (str(calls), str(error.value)):
        assert "s3cret" not in text
        assert "hidden" not in text


def test_what_the_process_says_last_is_told_when_it_dies(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_PROGRAM", "raise SystemExit('out of luck')")
    with pytest.raises(Unavailable, match="out of luck"):
        repository.fetch("git://127.0.0.1:1/x.git", MAIN)


@needs_git
def test_a_person_and_a_mirror_work_on_the_same_copy(
    repository: Repository, other: Repository, tmp_path: Path
) -> None:
    clone = work_tree(other, tmp_path / "clone")
    by_hand = pushed(clone, {"d.yaml": "d\n"})
    assert repository.fetch(other.path, MAIN, into=MAIN) == by_hand
    made = commit(repository, {"e.yaml": b"e"}).id
    repository.push(other.path, MAIN)
    git(clone, "pull", "--quiet", "--ff-only", "origin", "main")
    assert git(clone, "rev-parse", "HEAD") == made
    assert run_git(clone, "fsck", "--strict").returncode == 0
