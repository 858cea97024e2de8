"""Upload client: a connection to a dispatcher that retries while that may help.

After a refusal, no response or a broken connection it waits as long as the dispatcher says, or a
little longer each time, and retries until `patience_s` are over. Every request may be repeated.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from threading import Event
from typing import Any, Final, NamedTuple, final
from urllib.parse import quote

from sluicegate.apps.kv.address import dispatcher_at
from sluicegate.apps.kv.load.files import LoadPart
from sluicegate.command_line.service_client import ServiceAddress, ServiceClient
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.kernels.backoff import EQUAL, Backoff, BackoffSettings
from sluicegate.system import SystemChance, now_us
from sluicegate.wire.row_stream import ROWS_MEDIA_TYPE

TIMEOUT_S: Final = 90.0
_AGAIN: Final = frozenset({408, 425, 429, 419, 500, 502, 503, 504})
_BASE_US: Final = 50_000
_CAP_US: Final = 5_000_000
_HINT_US_MAX: Final = 60_000_000
_JSON: Final = "application/json"


class UploadTarget(NamedTuple):
    """Which dispatcher, and which upload."""

    where: ServiceAddress
    table: str
    name: str


class UploadRefused(SluicegateError):  # noqa: N818 - likewise
    """A dispatcher answered what asking again does not change."""

    def __init__(self, at: str, status: int, detail: str) -> None:
        super().__init__(f"{dispatcher_at(at)} answers {status}: {detail}")
        self.at = at
        self.status = status
        self.detail = detail

    def __reduce__(self) -> tuple[type[UploadRefused], tuple[str, int, str]]:
        return UploadRefused, (self.at, self.status, self.detail)


class UploadStopped(SluicegateError):  # noqa: N818 - it names the thing, as in contracts.errors
    """The load was stopped."""


@final
class UploadClient:
    """One connection, for one thread. `stop` ends every wait."""

    def __init__(
        self, target: UploadTarget, patience_s: float, stop: Event, on_wait: Callable[[], None]
    ) -> None:
        self._at = target.where.url
        self._name = target.name
        self._patience_us = round(patience_s * 1e6)
        self._stop = stop
        self._on_wait = on_wait
        self._backoff = Backoff(
            BackoffSettings(
                base_us=_BASE_US, wait_us_max=_CAP_US, jitter=EQUAL, hint_us_max=_HINT_US_MAX
            )
        )
        self._chance = SystemChance()
        self._all = f"/v1/tables/{quote(target.table, safe='')}/uploads"
        self._one = f"{self._all}/{quote(target.name, safe='')}"
        self._line = ServiceClient(target.where, dispatcher_at(self._at), timeout_s=TIMEOUT_S)

    def begin(self, mode: str) -> dict[str, Any]:
        """Open the upload, or find it as it stands."""
        return self._request("PUT", self._one, _json({"mode": mode}), {"Content-Type": _JSON})

    def show(self) -> dict[str, Any]:
        """How it stands."""
        return self._request("GET", self._one, None, {})

    def find_open(self) -> dict[str, Any] | None:
        """The upload into the table that is open, if there is one."""
        return next((one for one in self._list_uploads() if one["state"] == "open"), None)

    def find_upload(self) -> dict[str, Any] | None:
        """This upload, if there is or was one; it is not begun."""
        return next((one for one in self._list_uploads() if one["name"] == self._name), None)

    def abandon(self) -> dict[str, Any]:
        """Drop what was stored."""
        return self._request("DELETE", self._one, None, {})

    def send(self, part: LoadPart) -> None:
        """Send one part."""
        digest = b64encode(part.sha256).decode()
        headers = {"Content-Type": ROWS_MEDIA_TYPE, "Content-Digest": f"sha-256=:{digest}:"}
        self._request("PUT", f"{self._one}/parts/{part.number}", part.data, headers)

    def commit(self, parts: int, rows: int, sha256: bytes) -> dict[str, Any]:
        """Make it visible."""
        body = _json({"parts": parts, "rows": rows, "sha256": sha256.hex()})
        return self._request("POST", f"{self._one}:commit", body, {"Content-Type": _JSON})

    def close(self) -> None:
        """Hang up."""
        self._line.close()

    def _list_uploads(self) -> list[dict[str, Any]]:
        uploads: list[dict[str, Any]] = self._request("GET", self._all, None, {}).get("uploads", [])
        return uploads

    def _request(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> dict[str, Any]:
        until_us = now_us() + self._patience_us
        attempt = 0
        while True:
            if self._stop.is_set():
                raise UploadStopped("stopped")
            try:
                answer = self._line.call(method, path, body, headers)
            except Unavailable as error:
                detail, hint_us = error.detail, 0
            else:
                if answer.ok:
                    return answer.body if isinstance(answer.body, dict) else {}
                if answer.status not in _AGAIN:
                    raise UploadRefused(self._at, answer.status, answer.error)
                detail, hint_us = answer.error, _seconds_us(answer.retry_after)
            wait_us = self._backoff.wait_us(attempt, self._chance.draw(), hint_us=hint_us)
            if wait_us < 0 or now_us() + wait_us > until_us:
                raise Unavailable(self._line.what, detail)
            attempt += 1
            self._on_wait()
            self._stop.wait(wait_us / 1e6)


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _seconds_us(text: str) -> int:
    try:
        return max(round(float(text) * 1_000_000), 0)
    except (ValueError, OverflowError):
        return 0
