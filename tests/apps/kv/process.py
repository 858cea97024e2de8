"""A `sluicegate kv` as a user starts it, and a few words to say to it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import redis

from sluicegate.policies.access import token_digest
from tests.apps.server_process import ServerProcess



class KvProcess(ServerProcess):
    """One dispatcher."""

    app = "kv"

    def redis(self, token: str = "", **settings: Any) -> redis.Redis:
        """A real Redis client of it."""
        return redis.Redis(port=self.port, password=token or None, socket_timeout=60, **settings)


def token_of(name: str) -> str:
    """The secret of a caller in the tests."""
    return hashlib.sha256(name.encode()).hexdigest()


def access_file(folder: Path, callers: dict[str, str]) -> str:
    """An access file of callers by name; the text of each says all but its name and token."""
    lines = []
    for name, grants in callers.items():
        digest = token_digest(token_of(name))
        lines += ["[[callers]]", f'name = "{name}"', f'token_sha256 = "{digest}"', grants, ""]
    path = folder / "callers.toml"
    path.write_text("\n".join(lines))
    return str(path)
