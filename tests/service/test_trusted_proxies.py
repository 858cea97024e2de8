"""Every HTTP service behind a proxy that terminates TLS: its own pages may send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.apps.console.process import ConsoleProcess
from tests.apps.images.process import ImagesProcess
from tests.apps.kv.process import KvProcess
from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file
from tests.apps.pubsub.process import PubSubProcess

SERVICES: dict[str, Any] = {
    "console": (ConsoleProcess, "/login"),
    "images": (ImagesProcess, "/v1/prefetch"),
    "kv": (KvProcess, "/v1/tables/t/rows:get"),
    "limiter": (LimiterProcess, "/v1/check"),
    "pubsub": (PubSubProcess, "/v1/channels/news/messages"),
}


@pytest.mark.parametrize("app", sorted(SERVICES))
@pytest.mark.parametrize("trusted", ["127.0.0.0/8", "10.0.0.0/8"])
def test_own_page_behind_trusted_tls_proxy_may_send(tmp_path: Path, app: str, trusted: str) -> None:
    start, path = SERVICES[app]
    flags = ["--trusted-proxies", trusted]
    flags += {
        "limiter": ["--rules", rules_file(tmp_path, NATIVE)], "kv": ["--engine", "memory:"]
    }.get(app, [])  # fmt: skip
    with start(tmp_path, *flags) as server:
        headers = {
            "Origin": f"https://127.0.0.1:{server.port}",
            "X-Forwarded-For": "192.0.2.7",
            "X-Forwarded-Proto": "https",
        }
        status, _ = server.ask(path, {}, headers=headers)
        assert (status == 403) is (trusted == "10.0.0.0/8")
