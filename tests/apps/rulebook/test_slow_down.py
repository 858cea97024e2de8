"""A rulebook whose S3 store answers SlowDown to three of ten requests."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sluicegate.rules.releases.signatures import Verifier
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.blobs import s3 as s3_module
from tests.apps.rulebook.stories import RULES, Book
from tests.stores.blobs.s3_server import SECRETS, S3Server
from tests.stores.blobs.tap import SLOW_DOWN, Tap


def test_every_set_reaches_the_fleet_under_slow_down(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3_module, "_GAP_US_MIN", 100)
    monkeypatch.setattr(s3_module, "_GAP_US_MAX", 1_000)
    server = S3Server(tmp_path)
    tap = Tap(server.port)
    try:
        url = server.url()
        slow = url.replace(f":{server.port}&", f":{tap.port}&")
        rules = book.file(RULES)
        book.ok("init", book.folder, "--rules", rules, "--alone", "--blobs", slow)
        trusted = Verifier.read([str(next(book.folder.glob("keys/*.pub.pem")))])
        store = ReleaseStore(open_blobs(url), trusted)
        before = store.rollout()
        assert before is not None
        tap.slow_down = random.Random(3)
        for number in range(1, 5):
            book.at("set", f"play.limit={100 + number}", "--reason", "INC-214")
            now = store.rollout()
            assert now is not None
            assert now.rollout.live == before.rollout.live + number
        assert min(tap.slowed) > 5
    finally:
        tap.close()
        server.stop()


def test_undelivered_set_names_the_command_that_delivers_it(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3_module, "_GAP_US_MIN", 100)
    monkeypatch.setattr(s3_module, "_GAP_US_MAX", 1_000)
    server = S3Server(tmp_path)
    tap = Tap(server.port)
    try:
        url = server.url()
        slow = url.replace(f":{server.port}&", f":{tap.port}&")
        book.ok("init", book.folder, "--rules", book.file(RULES), "--alone", "--blobs", slow)
        trusted = Verifier.read([str(next(book.folder.glob("keys/*.pub.pem")))])
        store = ReleaseStore(open_blobs(url), trusted)
        tap.answer = SLOW_DOWN
        words = ("set", "play.limit=101", "--reason", "INC-214", "--rulebook", book.folder)
        code, _, err = book.run(*words)
        assert code == 1
        assert "sluicegate rules status delivers it" in err
        tap.answer = b""
        book.at("status")
        now = store.rollout()
        assert now is not None
        assert now.rollout.live == 2
    finally:
        tap.close()
        server.stop()
