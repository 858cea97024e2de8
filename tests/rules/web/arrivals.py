"""An arrival as tests say it."""

from __future__ import annotations

from collections.abc import Mapping


class PlainArrival:
    """A `contracts.arrival.Arrival` from plain values."""

    def __init__(
        self,
        path: str = "/",
        method: str = "GET",
        *,
        address: str = "10.0.0.1",
        user: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        self.method = method
        self._address = address
        self._user = user
        self.headers = dict(headers or {})

    def address(self) -> str:
        return self._address

    def user(self) -> str:
        return self._user

    def header(self, name: str) -> str:
        return self.headers.get(name, "")

    def __repr__(self) -> str:
        return f"Came({self.method} {self.path} {self._address} {self._user} {self.headers})"
