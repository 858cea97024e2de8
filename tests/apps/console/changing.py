"""A console in front of a real rulebook's server, of which people have roles."""

from __future__ import annotations

import http.client
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

from tests.apps.console.process import ConsoleProcess
from tests.apps.limiter.process import LimiterProcess
from tests.apps.rulebook.stories import Book
from tests.apps.rulebook.test_fleet import ANN, BOB, EVE, FIVE, following, people, server
from tests.engines.child import PATIENCE_S, run_to_end

__all__ = ["ANN", "BOB", "EVE", "FIVE"]


class Changing(NamedTuple):
    """The console, and the folder of the rulebook behind it."""

    console: ConsoleProcess
    book: Book


# As FIVE, for ten callers of whom everything is CRITICAL.
TEN = FIVE.replace(
    "names: {gateway: CRITICAL}", f"names: {{{', '.join(f'u{n}: CRITICAL' for n in range(10))}}}"
)


def capture_traffic(book: Book) -> None:
    """Have a real limiter capture 110 checks of each of the ten, none of them refused."""
    flags = following(book, "--capture", f"{book.folder}/capture", "--node", "n1")
    asks = [
        {"user_id": f"u{n % 10}", "resource_path": "/play", "priority": "CRITICAL"}
        for n in range(1_100)
    ]
    with LimiterProcess(book.folder, *flags) as limiter:
        for start in range(0, len(asks), 10):
            batch = {"requests": asks[start : start + 10]}
            assert limiter.ask("/v1/check/batch", batch)[0] == 200


def new_rulebook(book: Book, rules: str) -> None:
    """Make it, for several people."""
    words = ["rules", "init", str(book.folder), "--rules", str(book.file(rules))]
    run_to_end([sys.executable, "-m", "sluicegate.cli", *words]).check_returncode()


@contextmanager
def started_changing(folder: Path, *flags: str, rules: str = FIVE) -> Iterator[Changing]:
    """Both, started and ended."""
    book = Book(folder / "book", cast("Any", None))
    new_rulebook(book, rules)
    with (
        server(book, "--access", people(book)) as (url, _),
        ConsoleProcess(
            folder, "--services", "http://127.0.0.1:9", "--rulebook", url, *flags
        ) as console,
    ):
        yield Changing(console, book)


class Person:
    """What a person's browser does: keeps cookies, reads pages, sends the forms that are there."""

    def __init__(
        self, console: ConsoleProcess, token: str = "", cookies: Mapping[str, str] | None = None
    ) -> None:
        self._port = console.port
        self._cookies = dict(cookies or {})
        if token:
            status, place, _ = self.post("/changes/sign-in", {"token": token, "next": "/changes"})
            assert (status, place) == (303, "/changes")

    def get(self, path: str) -> str:
        """A page that is there."""
        status, _, page = self.ask("GET", path)
        assert status == 200, (status, page[-2_000:])
        return page

    def send(self, path: str, fields: Mapping[str, str], at: str) -> tuple[int, str, str]:
        """Send the form of the page `at`, with the mark that it has."""
        found = re.search(r'name="form_mark" value="(\w+)"', self.get(at))
        assert found is not None
        return self.post(path, {"form_mark": found[1], **fields})

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> tuple[int, str, str]:
        """Send fields."""
        return self.ask("POST", path, urlencode(fields), headers)

    def ask(
        self,
        method: str,
        path: str,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str, str]:
        """Status, where it leads, and the page."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        sent = {
            "Accept": "text/html",
            "Content-Type": "application/x-www-form-urlencoded",
            "Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items()),
            **(headers or {}),
        }
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        page = answer.read().decode()
        cookie = answer.headers.get("Set-Cookie", "").partition(";")[0]
        if cookie:
            name, _, value = cookie.partition("=")
            self._cookies[name] = value
        connection.close()
        return answer.status, answer.headers.get("Location", ""), page
