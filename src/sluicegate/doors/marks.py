"""Marks: how a request whose limit nobody could count is told of to whoever serves it.

A gateway that fails open lets through what a limit would have refused. So that the services behind
it can shed some of that, the request carries `X-RateLimit-Error: store_unavailable`, and the
program in the same process finds the word in `sluicegate.uncounted` of its scope or environ. A mark
that comes from outside says nothing and is taken off; one that trusted proxies let through stays.

A service behind reads the header with `uncounted`, which leaves an attribute on the request, and
`policies.criticality` ranks such a request below those that were counted.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from sluicegate.contracts.guard import Judgement
from sluicegate.contracts.reasons import STORE_UNAVAILABLE
from sluicegate.contracts.request import NO_ATTRIBUTES
from sluicegate.doors.headers import ERROR
from sluicegate.doors.proxies import Proxies, proxies_of

KEY: Final = "sluicegate.uncounted"  # in a scope or an environ
ATTRIBUTE: Final = "uncounted"  # of a request, as the policies see it
WORD_CHARS_MAX: Final = 64

_RAW: Final = ERROR.encode("ascii")
_RAW_MARK: Final = (_RAW, STORE_UNAVAILABLE.name.encode("ascii"))
_ENVIRON_KEY: Final = "HTTP_" + ERROR.upper().replace("-", "_")


def is_uncounted(judgement: Judgement) -> bool:
    """Whether a failure policy had a say in it."""
    return judgement.decision.degraded or any(one.decision.degraded for one in judgement.decisions)


def mark_scope(
    scope: MutableMapping[str, Any], judgement: Judgement | None, proxies: Proxies
) -> MutableMapping[str, Any]:
    """The scope as the application behind is to see it; the one given stays as it is."""
    headers = scope["headers"]
    mark = judgement is not None and is_uncounted(judgement)
    if mark or not proxies.trusted:
        headers = [one for one in headers if one[0].lower() != _RAW]
    if not mark:
        return scope if len(headers) == len(scope["headers"]) else {**scope, "headers": headers}
    return {**scope, "headers": [*headers, _RAW_MARK], KEY: STORE_UNAVAILABLE.name}


def mark_environ(
    environ: dict[str, Any], judgement: Judgement | None, proxies: Proxies
) -> dict[str, Any]:
    """The same for WSGI."""
    mark = judgement is not None and is_uncounted(judgement)
    if mark:
        name = STORE_UNAVAILABLE.name
        return {**environ, _ENVIRON_KEY: name, KEY: name}
    if proxies.trusted or _ENVIRON_KEY not in environ:
        return environ
    return {name: value for name, value in environ.items() if name != _ENVIRON_KEY}


def uncounted(header: str, trust_proxies: int | Proxies) -> Mapping[str, str]:
    """The attributes of a request with this `X-RateLimit-Error`; a stranger's says nothing."""
    if not header or not proxies_of(trust_proxies).trusted:
        return NO_ATTRIBUTES
    return {ATTRIBUTE: header[:WORD_CHARS_MAX]}
