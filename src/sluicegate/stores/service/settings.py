"""Settings: where a service is (`sluicegate://:token@host:port`), as settings of a connection.

A service speaks RESP, so its URL may say in its query whatever a Redis URL may say of a connection.
`sluicegates://` is the same over TLS. Several addresses are workers of one service, and whichever
is asked counts; that is one limit only if they share a store, so they are refused until the URL
says that they do: `sluicegate://a:7070,b:7070?shared=yes`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.redis.settings import FLEET, RedisSettings, parse_url

SCHEMES: Final[dict[str, tuple[str, bool, bool]]] = {
    "sluicegate": (FLEET, False, False),
    "sluicegates": (FLEET, True, False),
}
_DEFAULTS: Final[dict[str, object]] = {"kind": "Sluicegate"}


def is_service(url: str) -> bool:
    """Return whether a URL names a service."""
    return url.partition("://")[0].lower().removeprefix("async+") in SCHEMES


def parse_service_url(url: str, *, timeout_us: int | None = None) -> RedisSettings:
    """Return the settings that a URL says; `timeout_us` goes before what it says."""
    try:
        settings = parse_url(url, SCHEMES, _DEFAULTS)
        return settings if timeout_us is None else replace(settings, timeout_us=timeout_us)
    except BadValue as error:
        field = error.field.replace("redis", "sluicegate", 1)
        remedy = error.remedy.replace("scheme://", "sluicegate://").removesuffix("/db")
        raise BadValue(field, error.value, remedy) from None
