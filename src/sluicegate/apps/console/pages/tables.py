"""Tables: the pages that are one: callers, hot keys, queues, accounts, dead letters, nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import quote

from sluicegate.apps.console.pages.overview import slow_shards, span
from sluicegate.apps.console.picture import CLASSES, FleetPicture, NodeRow
from sluicegate.apps.console.readings import AskedHour, FleetReadings
from sluicegate.command_line.account_rates import PERIODS
from sluicegate.command_line.charts import spark_line
from sluicegate.command_line.page import (
    cell,
    escape_name,
    escape_words,
    number,
    quiet,
    row,
    section,
    table,
)
from sluicegate.command_line.text import ago, counted, duration, limit_words, per_second
from sluicegate.kernels.quota_tuning import sufficing_quota

ROWS_MAX: Final = 200
_PERIOD_HEADS: Final = tuple(f"this {name}" for name in PERIODS)
NEARLY: Final = 0.9  # of a quota
_MIB: Final = 1 << 20


def callers(
    picture: FleetPicture, readings: FleetReadings, *, may_change: bool = False
) -> dict[str, str]:
    """Return who asks for how much, of what they may have, and which quota would have done."""
    found: Sequence[Mapping[str, Any]] = picture.dispatchers.get("callers", ())
    rows = [
        row(
            cell(_why(one["caller"]), "name"),
            number(f"{one['ru']:,.1f}"),
            number(f"{one['quota_ru']:,}" if one["quota_ru"] else "-"),
            _share_of(one["ru"], one["quota_ru"]),
            number(per_second(one["admitted"])),
            number(per_second(one["refused"]), bad=one["refused"] > 0),
            cell(spark_line(f"{one['caller']}: units a second", readings.trend(one["caller"]))),
            cell(_proposal(one, readings.demand(one["caller"]), may_change=may_change)),
        )
        for one in found[:ROWS_MAX]
    ]
    if not rows:
        words = "No dispatcher has served anybody yet. Limiters do not count by caller."
        return {"callers": quiet(words)}
    heads = ("RU a second", "quota", "of it", "admitted", "refused")
    behind = ("the last hour", "tuning proposal")
    return {
        "callers": table(("caller",), heads, rows, behind)
        + quiet(
            "Those who spend most come first; a name leads to its refusals. A proposal goes by "
            "what was asked for, repeats of what was refused included, and an hour is never reason "
            "for less: sluicegate quota tune reads a month of what dispatchers keep with --usage."
        )
    }


def _proposal(one: Mapping[str, Any], hour: AskedHour, *, may_change: bool) -> str:
    """The quota that would have done for what a caller asked in the last hour, and why."""
    quota_ru = one["quota_ru"]
    refused = quota_ru > 0 and hour.refused_part > 0
    proposed = sufficing_quota(hour.peak_ru, quota_ru) if refused else None
    if proposed is None:
        return ""
    words = (
        f"It asked for up to {hour.peak_ru:,.0f} a second, {hour.peak_ru / quota_ru:.1f} times its "
        f"quota, and {hour.refused_part:.0%} was refused; with 30% headroom that makes "
        f"{proposed:,}."
    )
    value = f"{proposed:,}"
    if may_change:
        place = f"/changes/quota?caller={quote(one['caller'], safe='')}&ru={proposed}"
        value = f'<a href="{escape(place)}">{value}</a>'
    return f"{value} {quiet(words)}"


def _share_of(ru: float, quota_ru: int) -> str:
    if not quota_ru:
        return number("-")
    share = ru / quota_ru
    return number(f"{share:.0%}", bad=share >= NEARLY)


def hot_keys(picture: FleetPicture) -> dict[str, str]:
    """Return the keys that everybody reads."""
    looked = picture.dispatchers.get("shield", {}).get("looked", 0.0)
    words = (
        f"{per_second(looked)} point reads, of which {per_second(picture.from_memory)} were "
        "answered from memory."
    )
    rows = [
        row(
            cell(escape_name(one["key"]), "name"),
            number(f"{one['share']:.1%}"),
            number(per_second(one["rate"])),
            number(per_second(one["forwarded"])),
            number(f"{one['size_bytes']:,}"),
        )
        for one in picture.dispatchers.get("hot", ())[:ROWS_MAX]
    ]
    heads = ("share of reads", "reads", "to the engine", "bytes")
    return {"hot": quiet(words) + (table(("key",), heads, rows) if rows else quiet("None is hot."))}


def queues(picture: FleetPicture) -> dict[str, str]:
    """Return what waits before work, what the engine takes, what it costs, and open breakers."""
    engine = [
        row(
            cell(escape_name(one["operation"])),
            number(per_second(one["worked"])),
            number(span(one["mean_us"])),
            number(per_second(one["failed"]), bad=one["failed"] > 0),
        )
        for one in picture.dispatchers.get("engine", ())
    ]
    return {
        "queue": section("Queues", _waiting(picture)),
        "engine": section("Engine", table(("operation",), ("done", "mean time", "failed"), engine)),
        "slow": section("Slow shards", slow_shards(picture, ROWS_MAX)),
        "breakers": section("Breakers", _breakers(picture)),
    }


def _waiting(picture: FleetPicture) -> str:
    """Of each queue what is in flight, what waits and how long, and what is rejected there."""
    rows = [
        row(
            cell(escape_name(one.name), "name"),
            number(f"{one.inflight:,}"),
            number(limit_words(one.slots, one.origin)),
            number(f"{one.queued:,}" + (f" ({one.queued_bytes:,} B)" if one.queued_bytes else "")),
            number(span(one.delay_us)),
            cell(
                escape_words(
                    ", ".join(f"{reason} {per_second(rate)}" for reason, rate in one.refused)
                ),
                "bad",
            )
            if one.refused
            else cell("none"),
            cell(escape_words(one.overload), "bad") if one.overload else cell("none"),
        )
        for one in picture.queues[:ROWS_MAX]
    ]
    if not rows:
        return quiet("None of these services has a queue: no dispatcher, no protected service.")
    heads = ("in flight", "limit", "wait", "queue delay")
    return table(("queue",), heads, rows, ("rejected, by reason", "overload"))


def _breakers(picture: FleetPicture) -> str:
    """What services do not call for now: engines, stores, origins of images."""
    board = picture.dispatchers
    open_: list[tuple[str, str, str]] = []
    for part, name in (("engine_state", "the engine"), ("store", "the store of quotas")):
        found = board.get(part) or {}
        if found.get("gone_for"):
            who = counted(found["gone_for"], "dispatcher")
            open_.append((f"{name} of {who}", "open", str(found.get("why") or "")))
    for one in picture.images:
        open_ += [(f"{host}, by {one.node}", state, "") for host, state in one.unwell]
    for breaker in picture.breakers:
        backend = " ".join(filter(None, (breaker.backend, breaker.operation))) or "its backend"
        open_.append((f"{backend}, by {breaker.client} at {breaker.node}", breaker.state, ""))
    if not open_:
        return quiet("All are closed: engines, stores, origins of images and backends answer.")
    rows = [
        row(
            cell(escape_name(what), "name"),
            cell(escape_name(state), "bad"),
            cell(escape_words(why)),
        )
        for what, state, why in open_[:ROWS_MAX]
    ]
    return table(("calls to", "are", "because"), (), rows)


def accounts(picture: FleetPicture) -> dict[str, str]:
    """Return what the nodes of a pub/sub cluster do with their accounts."""
    rows = [
        row(
            cell(escape_name(one.node), "name"),
            number(per_second(one.admitted)),
            number(per_second(one.suppressed), bad=one.suppressed > 0),
            number(per_second(one.fused), bad=one.fused > 0),
            number(f"{one.accounts:,}"),
            number(f"{one.suppressed_accounts:,}", bad=one.suppressed_accounts > 0),
            number(f"{one.mastered:,}"),
            number(f"{one.nodes:,}"),
            number(f"{one.untracked:,}", bad=one.untracked > 0),
        )
        for one in picture.accounts[:ROWS_MAX]
    ]
    if not rows:
        return {"accounts": quiet("None of these services is a pub/sub node.")}
    heads = (
        "admitted",
        "suppressed",
        "over its bound",
        "accounts",
        "accounts suppressed",
        "master of",
        "nodes heard",
        "untracked",
    )
    words = "What is over a node's own bound is refused there at once, whatever the master says."
    return {
        "factors": section("Accounts, over all nodes", _factors(picture)),
        "accounts": section("Nodes", table(("node",), heads, rows), quiet(words)),
    }


def _factors(picture: FleetPicture) -> str:
    """Of each account what is refused of it, who said so, how long ago, and what it has used."""
    suppressed_first = sorted(picture.factors, key=lambda one: one["factor"] <= 0)
    rows = [
        row(
            cell(escape_name(one["account"]), "name"),
            number(per_second(one["attempted"])),
            number(per_second(one["admitted"])),
            number(per_second(one["limit"]) if one["limit"] else "none"),
            number(f"{one['factor']:.3f}", bad=one["factor"] > 0),
            number("never heard" if one["age_us"] < 0 else f"{one['age_us'] / 1_000:,.0f} ms ago"),
            *(_used(one[name], warned=name in one["warnings"]) for name in PERIODS),
            cell(escape_name(", ".join(one["masters"])) or "the node itself", "name"),
        )
        for one in suppressed_first[:ROWS_MAX]
    ]
    if not rows:
        return quiet("No account has published anything yet.")
    more = len(picture.factors) - ROWS_MAX
    heads = ("attempted", "admitted", "limit", "suppression factor", "heard", *_PERIOD_HEADS)
    words = (
        "The suppression factor is the fraction of an account's messages that every node refuses, "
        "so that what is admitted keeps its limit. The account's master, one of the nodes, "
        "computes it from what all nodes report; heard is how old the news is that they act upon. "
        "Hour and month are limits of their own: used of what it may, red where it is near or over."
    )
    return (
        table(("account",), heads, rows, ("set by (master)",))
        + (quiet(f"and {counted(more, 'account')} more") if more > 0 else "")
        + quiet(words)
    )


def _used(period: Mapping[str, int], *, warned: bool) -> str:
    used, nominal = period["used"], period["nominal"]
    return number(f"{used:,} of {nominal:,}" if nominal else f"{used:,}", bad=warned)


def dead_letters(picture: FleetPicture) -> dict[str, str]:
    """Return how many decisions were made without the store, and where they are kept."""
    rows = [
        row(
            cell(escape_name(one.node), "name"),
            number(f"{one.counts.get('written', 0):,}"),
            number(f"{one.counts.get('depth', 0):,}"),
            number(f"{one.counts.get('dropped', 0):,}", bad=bool(one.counts.get("dropped"))),
        )
        for one in picture.letters[:ROWS_MAX]
    ]
    if not rows:
        words = "No limiter here keeps dead letters: <code>sluicegate limiter --dlq URL</code>."
        return {"letters": quiet(words)}
    dropped = picture.dead_letters.get("dropped", 0)
    kind = "alarm" if dropped else "calm"
    state = (
        f"{counted(dropped, 'decision')} made without the store could not be kept."
        if dropped
        else "Every decision made without the store is kept."
    )
    check = (
        "<code>sluicegate dlq check</code> compares them with the decisions, and finds what is "
        "missing, twice or wrong; <code>sluicegate dlq show</code> prints them."
    )
    return {
        "state": f'<p class="going-on {kind}">{state}</p>',
        "letters": table(("limiter",), ("kept", "waiting", "lost"), rows) + quiet(check),
    }


def nodes(picture: FleetPicture) -> dict[str, str]:
    """Return the services, those that do not answer first."""
    rows = [_node(one, picture.at_us) for one in sorted(picture.nodes, key=_alive)[:ROWS_MAX]]
    more = len(picture.nodes) - ROWS_MAX
    heads = ("admitted", "refused", "memory", "up for")
    shown = table(("service", "state", "is", "version", "rules", "lag"), heads, rows)
    if more > 0:
        shown += quiet(f"and {counted(more, 'service')} more, which all answer or are as above")
    gates = [
        row(
            cell(escape_name(one.node), "name"),
            number(f"{one.utilization:.0%}", bad=max(one.shed, default=0.0) > 0),
            cell(escape(one.worst)),
            *(number(f"{share:.0%}", bad=share > 0) for share in one.shed),
        )
        for one in picture.gates[:ROWS_MAX]
    ]
    parts = {"nodes": shown}
    if gates:
        filled = ("limiter",), ("full", "of its", *(f"{name} shed" for name in CLASSES))
        parts["gates"] = section("How full limiters are", table(*filled, gates))
    return parts


def _alive(node: NodeRow) -> tuple[bool, str]:
    return (not node.error, node.url)


def _node(node: NodeRow, at_us: int) -> str:
    if node.error:
        seen = f"; it last did {ago(at_us - node.answered_us)}" if node.answered_us else ""
        state = cell(f"does not answer: {escape_name(node.error)}{seen}", "bad")
        return row(cell(escape_name(node.url), "name"), state, *[cell("")] * 8)
    ready = cell(escape_name(node.not_ready), "bad") if node.not_ready else cell("ready", "good")
    return row(
        cell(escape_name(node.url), "name"),
        ready,
        cell(escape_name(f"{node.app} {node.name}".strip())),
        cell(escape_name(node.version)),
        cell(escape_name(node.release)),
        cell(escape_words(node.rules_trouble), "bad")
        if node.rules_trouble
        else cell(f"checked {ago(node.rules_age_us)}" if node.rules_age_us >= 0 else ""),
        number(per_second(node.admitted)),
        number(per_second(node.refused)),
        number(f"{node.memory_bytes / _MIB:,.0f} MiB"),
        number(duration(node.up_us)),
    )


def _why(caller: str) -> str:
    return f'<a href="/why?caller={escape(quote(caller, safe=""))}">{escape_name(caller)}</a>'
