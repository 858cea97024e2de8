"""Rule search: the rules in force whose name or path has some letters, page by page.

The book itself is looked through, so it costs no memory and no index to keep. A million rules are
looked through in portions, between which decisions go on; a page of results ends the search, and
says where the next begins. Rules of our own format come first, then those of Envoy's, which have a
domain in place of a path, kind of client and priority. Bounds: `COUNT_MAX` rules in an answer,
`LETTERS_MAX`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.http.fields import query_of, whole_of
from sluicegate.doors.http.message import HttpReply, HttpRequest, json_reply
from sluicegate.doors.http.routes import Parameter, Route, RouteResponse
from sluicegate.doors.http.schemas import TEXT
from sluicegate.rules.mesh.identity import plain_text, varying_keys
from sluicegate.rules.mesh.rule import Counting, MeshRule
from sluicegate.rules.resources.rule import ANY_PRIORITY, ResourceRule
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.telemetry.service_metrics import OUTCOMES, ServiceMetrics

COUNT_DEFAULT: Final = 50
COUNT_MAX: Final = 200
LETTERS_MAX: Final = 256
SKIP_BITS: Final = 24  # of a cursor: the rules of a portion that were shown
CURSOR_MAX: Final = 1 << 53


@final
class RuleSearch:
    """GET /v1/rules; `book` is what is in force. Counts are those of this worker."""

    def __init__(self, book: Callable[[], ServiceRuleSet | None], metrics: ServiceMetrics) -> None:
        self._book = book
        self._metrics = metrics

    def route(self) -> Route:
        """The row."""
        return Route(
            "GET",
            "/v1/rules",
            self.find,
            "Rules in force whose name or path has these letters.",
            {200: RouteResponse("Rules, and `next`, where the search goes on.", "RuleList")},
            grant=Grant.AUDIT,
            parameters=(
                Parameter("q", "Letters; all rules without them.", TEXT),
                Parameter("name", "The rule of this name instead.", TEXT),
                Parameter("after", "`next` of an earlier answer.", TEXT),
                Parameter("count", f"At most how many, to {COUNT_MAX}.", TEXT),
            ),
        )

    async def find(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        """GET /v1/rules."""
        fields = query_of(request, ("q", "name", "after", "count"))
        needle = fields.get("q", "")
        if len(needle) > LETTERS_MAX:
            raise BadValue("q", needle, f"give at most {LETTERS_MAX} letters")
        after = whole_of("after", fields.get("after", "0"), 0, CURSOR_MAX)
        count = whole_of("count", fields.get("count", str(COUNT_DEFAULT)), 1, COUNT_MAX)
        book = self._book()
        if book is None:
            return json_reply({"version": "", "of": 0, "rules": [], "next": None})
        name, follows = fields.get("name", ""), None
        rules: list[ResourceRule | MeshRule]
        if name:
            rules = await _named(book, name)
        else:
            rules, follows = await _search(book, needle, after, count)
        return json_reply(
            {
                "version": book.version,
                "of": len(book),
                "rules": [self._view(rule) for rule in rules],
                "next": follows,
            }
        )

    def _view(self, rule: ResourceRule | MeshRule) -> dict[str, Any]:
        counts = self._metrics.rules.get(rule.rule_id)
        return {
            "rule_id": rule.rule_id,
            **(_mesh_view(rule) if isinstance(rule, MeshRule) else _view(rule)),
            "counts": {} if counts is None else dict(zip(OUTCOMES, counts, strict=True)),
        }


def _view(rule: ResourceRule) -> dict[str, Any]:
    kind, limit = rule.kind, rule.kind.limit
    return {
        "resource_path": rule.path,
        "client_type": rule.client_type,
        "priority": "" if rule.priority == ANY_PRIORITY else Criticality(rule.priority).name,
        "limit": limit.count,
        "period_us": limit.period_us,
        "burst": limit.burst,
        "algorithm": limit.algorithm.value,
        "per": kind.per.value,
        "shadow": kind.shadow,
    }


def _mesh_view(rule: MeshRule) -> dict[str, Any]:
    form = rule.form
    limits = [_limit_view(one) for one in form.countings]
    return {
        "domain": plain_text(rule.rule_id.partition("/")[0]),
        "priority": "" if form.priority is None else form.priority.name,
        **(limits[0] if limits else {"limit": None, "period_us": None, "algorithm": ""}),
        "further_limits": limits[1:],
        "per": ", ".join(varying_keys(rule)),
        "shadow": form.shadow,
    }


def _limit_view(counting: Counting) -> dict[str, Any]:
    limit = counting.limit
    return {
        "limit": counting.count,
        "period_us": None if counting.blocks else counting.period_us,
        "algorithm": "" if limit is None else limit.algorithm.value,
    }


async def _named(book: ServiceRuleSet, name: str) -> list[ResourceRule | MeshRule]:
    rule = book.resources.rule(name)
    if rule is not None:
        return [rule]
    for number in range(book.mesh.portions):
        for one in book.mesh.portion(number, name):
            if one.rule_id == name:
                return [one]
        await asyncio.sleep(0)
    return []


async def _search(
    book: ServiceRuleSet, needle: str, after: int, count: int
) -> tuple[list[ResourceRule | MeshRule], int | None]:
    """The next rules, and where it goes on; None where there are no more."""
    resources, mesh = book.resources, book.mesh
    at, skip = after >> SKIP_BITS, after & ((1 << SKIP_BITS) - 1)
    found: list[ResourceRule | MeshRule] = []
    for number in range(at, resources.portions + mesh.portions):
        these: Sequence[ResourceRule | MeshRule]
        if number < resources.portions:
            these = resources.portion(number, needle)[skip:]
        else:
            these = mesh.portion(number - resources.portions, needle)[skip:]
        room = count - len(found)
        if len(these) > room:
            found += these[:room]
            return found, number << SKIP_BITS | (skip + room)
        found += these
        skip = 0
        await asyncio.sleep(0)
    return found, None
