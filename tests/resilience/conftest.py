"""Gives clients of this folder one authority to trust instead of 140.

A client of httpx reads them all, for 30 ms of CPU, and these tests make a thousand clients.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trustme


@pytest.fixture(autouse=True, scope="package")
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path = tmp_path_factory.mktemp("authority") / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(path))
        yield
