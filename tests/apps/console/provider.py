"""A real OpenID Connect provider in a process, and a console at which its people log in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.apps.console.process import ConsoleProcess
from tests.apps.kv.process import access_file
from tests.engines.child import Child, free_port, until


@contextmanager
def provider(folder: Path, people: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """Its URL; each of the people is the claims that it makes of them."""
    port = free_port("127.0.0.1")
    words = [word for one in people for word in ("--user-claims", json.dumps(one))]
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "-p", str(port), *words]
    child = Child("oidc-provider-mock", command, folder / "provider.log")
    issuer = f"http://127.0.0.1:{port}"
    try:
        until(
            lambda: urlopen(issuer + "/.well-known/openid-configuration").close() is None,
            "the provider", children=[child],
        )  # fmt: skip
        yield issuer
    finally:
        child.stop()


def console_at(folder: Path, issuer: str) -> ConsoleProcess:
    """A console whose people are those of this provider, and nobody else.

    Browsers call it by another host than the provider, so that each is another site to them.
    """
    port = free_port("127.0.0.1")
    return ConsoleProcess(
        folder,
        "--services", "http://127.0.0.1:1", "--access", access_file(folder, {}),
        "--oidc-issuer", issuer, "--oidc-client", "console", "--oidc-secret", "any secret",
        "--oidc-url", f"http://localhost:{port}", "--oidc-grants", "ops=audit,operate",
        port=port,
    )  # fmt: skip
