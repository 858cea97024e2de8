"""A `sluicegate limiter` as a user starts it: a process of its own, real sockets, a ready line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.apps.server_process import ServerProcess


class LimiterProcess(ServerProcess):
    """One limiter."""

    app = "limiter"

    def check(self, user: str, path: str = "/", **more: object) -> Any:
        """One native check over HTTP."""
        status, body = self.ask("/v1/check", {"user_id": user, "resource_path": path, **more})
        assert status == 200, body
        return body


def rules_file(folder: Path, text: str, name: str = "rules.yaml") -> str:
    """A rules file in this folder, replaced whole as an editor would."""
    file = folder / name
    beside = folder / f".{name}.new"
    beside.write_text(text)
    beside.replace(file)
    return str(file)


NATIVE = """\
version: 1
rules:
  - rule_id: playback
    resource_path: /api/v1/playback
    limit: 5
    window_seconds: 60
    burst_capacity: 1.2
  - rule_id: bulk
    resource_path: /bulk/*
    priority_bucket: BULK
    limit: 1000
    window_seconds: 60
"""
ENVOY = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
"""
