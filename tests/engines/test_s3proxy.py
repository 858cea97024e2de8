"""Blobs and images on an S3 server that people run: the contract, and kill -9 of who writes there.

It keeps blobs as files, so three of the contract's tests are not for it: names as long as a file's
may be or within another one, and `If-Match`, which it compares before it writes and not while it
does. The image service needs neither: its blobs are created and never replaced.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sluicegate.contracts.blob_store import BlobStore
from sluicegate.stores.blob_stores import open_blobs
from tests.apps.images.test_kill import survive_kills
from tests.engines.s3proxy import S3Proxy
from tests.stores.blobs.conformance import BlobStoreConformance, value
from tests.stores.blobs.races import race
from tests.stores.blobs.s3_server import SECRETS

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)


class TestS3Proxy(BlobStoreConformance):
    test_every_good_name_is_taken_and_told_apart: Any = None
    test_a_name_is_blob_and_folder_or_the_second_is_refused: Any = None
    test_no_update_of_many_threads_is_lost: Any = None

    @pytest.fixture
    def url(self, s3proxy: S3Proxy) -> str:
        return s3proxy.url()


def test_of_processes_that_race_one_writes_what_is_not_there(s3proxy: S3Proxy) -> None:
    race(s3proxy.url(), 20, counting=False)


def test_what_is_written_survives_the_end_of_the_server(s3proxy: S3Proxy) -> None:
    blobs: BlobStore = open_blobs(s3proxy.url())
    blobs.put("a/b", b"one", if_absent=True)
    s3proxy.kill(1)
    s3proxy.heal()
    assert value(blobs, "a/b") == b"one"
    assert list(blobs.names()) == ["a/b"]


def test_after_a_kill_of_the_image_service_every_entry_points_to_a_blob_whose_hash_is_right(
    s3proxy: S3Proxy, tmp_path: Path
) -> None:
    survive_kills(tmp_path, 1, 1, s3proxy.url())
