"""Signed tokens as an account's backend makes them, and the server that accepts them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt

from tests.apps.pubsub.process import PubSubProcess
from tests.apps.pubsub.test_whole import UNLIMITED, access_of

SECRET = "s" * 43
EVERY: Mapping[str, list[str]] = {"*": ["publish", "subscribe", "presence", "history"]}


def signed(
    channels: object = EVERY,
    *,
    key: Any = SECRET,
    algorithm: str = "HS256",
    header: dict[str, Any] | None = None,
    for_s: float = 600.0,
    **claims: object,
) -> str:
    """A token of ann's client mia; `claims` replace those, None leaves one out."""
    every = {"account": "ann", "sub": "mia", "exp": time.time() + for_s, "channels": channels}
    every |= claims
    sent = {name: value for name, value in every.items() if value is not None}
    return jwt.encode(sent, key, algorithm, headers=header)


def secret_of(folder: Path, secret: str = SECRET) -> Path:
    """The file of a secret."""
    file = folder / "signing.key"
    file.write_text(f"{secret}\n")
    return file


def token_server(folder: Path, *flags: str, port: int = 0) -> PubSubProcess:
    """A service that accepts tokens of `signed`."""
    keys = ("--access", access_of(folder), "--jwt-secret", str(secret_of(folder)))
    return PubSubProcess(folder, *keys, *UNLIMITED, *flags, port=port)
