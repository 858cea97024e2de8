"""Responses: statuses as headers and metadata, as services of this protocol write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sluicegate.contracts.checks import STATUS_NORMAL, MeshRequest, MeshResponse, MeshStatus
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import SHED, STORE_UNAVAILABLE
from sluicegate.rules.mesh.rule import UNIT_NAMES, MeshRule

ERROR: Final = "x-ratelimit-error"
REASON: Final = "x-sluicegate-reason"
STATUS: Final = "x-sluicegate-status"
RETRY_AFTER: Final = "retry-after"
_MARK: Final = "sluicegate"  # our own part of the metadata
_SECOND_US: Final = 1_000_000

NO_LIMIT: Final = MeshStatus(False)


def limit_headers(
    names: tuple[str, str, str],
    statuses: Sequence[MeshStatus],
    rules: Sequence[MeshRule | None],
) -> list[tuple[str, str]]:
    """Of the descriptor that is over, else of the one with the least left."""
    least: MeshStatus | None = None
    for at in range(len(statuses)):
        status, rule = statuses[at], rules[at]
        if status.limit is None or rule is None:
            continue
        if status.over and not rule.form.quota:
            least = status
            break
        if least is None or status.remaining < least.remaining:
            least = status
    if least is None or least.limit is None:
        return []
    return [
        (names[0], str(least.limit.requests_per_unit)),
        (names[1], str(least.remaining)),
        (names[2], str(max(-(-least.reset_us // _SECOND_US), 0))),
    ]


def metadata(
    request: MeshRequest, statuses: Sequence[MeshStatus], rules: Sequence[MeshRule | None]
) -> dict[str, object]:
    """The request, and the metadata of the rules that let it pass."""
    found: dict[str, object] = {"domain": request.domain}
    descriptors: list[object] = []
    for descriptor in request.descriptors:
        one: dict[str, object] = {
            "entries": [f"{key}={value}" for key, value in descriptor.entries]
        }
        override = descriptor.override
        if override is not None:
            unit = UNIT_NAMES[override.unit]
            one["limit"] = {"requestsPerUnit": override.requests_per_unit, "unit": unit}
        if descriptor.cost >= 0:
            one["hitsAddend"] = descriptor.cost
        descriptors.append(one)
    found["descriptors"] = descriptors
    if request.cost:
        found["hitsAddend"] = request.cost
    of_rules: dict[str, object] = {}
    for status, rule in zip(statuses, rules, strict=True):
        if rule is not None and rule.form.metadata is not None and not status.over:
            _merge(of_rules, rule.form.metadata)
    if of_rules:
        found["metadata"] = of_rules
    return found


def _merge(into: dict[str, object], more: Mapping[str, object]) -> None:
    """Add what is not there yet; mappings grow together, of anything else the first stays."""
    for name, value in more.items():
        there = into.get(name)
        if isinstance(there, dict) and isinstance(value, dict):
            _merge(there, value)
        elif name not in into:
            if isinstance(value, dict):
                # A copy: what is merged into it later must not reach the rule's own.
                copied: dict[str, object] = {}
                _merge(copied, value)
                into[name] = copied
            else:
                into[name] = value


def mark_degraded(response: MeshResponse, *, closed: bool) -> MeshResponse:
    """Mark a response that was decided without the store."""
    error = (ERROR, STORE_UNAVAILABLE.name)
    headers = list(response.response_headers)
    if closed:
        headers.append((REASON, STORE_UNAVAILABLE.name))
    return MeshResponse(
        response.over,
        response.statuses,
        response_headers=headers,
        request_headers=[*response.request_headers, error],
        metadata=_with_mark(
            response.metadata, {"without_store": True, "reason": STORE_UNAVAILABLE.name}
        ),
        body=response.body,
    )


def shed_response(
    refusal: Decision,
    status: str,
    statuses: Sequence[MeshStatus],
    found: Mapping[str, object] | None,
) -> MeshResponse:
    """The response to work that is refused because the service is under stress."""
    reason = refusal.reason or SHED
    headers = [(REASON, reason.name)]
    if status != STATUS_NORMAL:
        headers.append((STATUS, status))
    if refusal.retry_after_us > 0:
        headers.append((RETRY_AFTER, str(-(-refusal.retry_after_us // _SECOND_US))))
    mark: dict[str, object] = {"reason": reason.name}
    if status != STATUS_NORMAL:
        mark["status"] = status
    return MeshResponse(True, statuses, response_headers=headers, metadata=_with_mark(found, mark))


def mark_stressed(found: dict[str, object], status: str) -> dict[str, object]:
    """Add that the service is under stress."""
    return found if status == STATUS_NORMAL else _with_mark(found, {"status": status})


def _with_mark(found: Mapping[str, object] | None, mark: dict[str, object]) -> dict[str, object]:
    before = (found or {}).get(_MARK)
    return {**(found or {}), _MARK: {**before, **mark} if isinstance(before, dict) else mark}
