"""A real OpenID Connect provider in a process, and a console at which its people log in."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import urlopen

from tests.apps.console.process import ConsoleProcess
from tests.apps.kv.process import access_file
from tests.engines.child import Child, free_port, until


class Reply(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    text: str

    def cookies(self) -> dict[str, str]:
        pairs = [one.partition(";")[0] for one in self.headers.get_all("Set-Cookie", [])]
        return dict(pair.split("=", 1) for pair in pairs)


def ask(url: str, cookies: dict[str, str] | None = None, form: str | None = None) -> Reply:
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.netloc, timeout=60)
    headers = {"Accept": "text/html"}
    if cookies:
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
    if form is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    path = at.path + (f"?{at.query}" if at.query else "")
    connection.request("GET" if form is None else "POST", path, form, headers)
    answer = connection.getresponse()
    found = Reply(answer.status, answer.headers, answer.read().decode())
    connection.close()
    return found


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


def console_at(folder: Path, issuer: str, *more: str) -> ConsoleProcess:
    """A console whose people are those of this provider, and nobody else.

    Browsers call it by another host than the provider, so that each is another site to them.
    """
    port = free_port("127.0.0.1")
    return ConsoleProcess(
        folder,
        "--services", "http://127.0.0.1:1", "--access", access_file(folder, {}),
        "--oidc-issuer", issuer, "--oidc-client", "console", "--oidc-secret", "any secret",
        "--oidc-url", f"http://localhost:{port}", "--oidc-grants", "ops=audit,operate",
        *more,
        port=port,
    )  # fmt: skip


def log_in(console: ConsoleProcess, subject: str, path: str = "/nodes") -> Reply:
    """As a browser does, with its cookies; what the console says when it is back."""
    begun = ask(f"{console.url}/login/oidc?next={path}")
    assert begun.status == 303, begun.text
    back = ask(begun.headers["Location"], form=f"sub={subject}")
    return ask(back.headers["Location"], begun.cookies())
