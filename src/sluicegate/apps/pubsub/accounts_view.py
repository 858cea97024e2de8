"""Accounts view: the picture of a cluster's accounts as lines of a terminal. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sluicegate.command_line.account_rates import PERIODS
from sluicegate.command_line.text import counted, harmless, rate, table

NAME_CHARS_MAX: Final = 40
ROWS_MAX: Final = 20
_CUT: Final = "\N{HORIZONTAL ELLIPSIS}"


def lines_of(picture: Mapping[str, Any], *, rows: int = ROWS_MAX) -> list[str]:
    """The picture for people. Accounts choose their names, which never control a terminal."""
    nodes, accounts = picture["nodes"], picture["accounts"]
    alive = [one for one in nodes if not one["error"]]
    attempted = sum(one["attempted"] for one in accounts)
    admitted = sum(one["admitted"] for one in accounts)
    members = {name for one in alive for name in one["members"]}
    named = counted(max(len(members), len(nodes)), "node")
    rates = f"{rate(attempted)} messages/s attempted, {rate(admitted)} admitted"
    lines = [f"{len(alive)} of {named}: {rates}"]
    lines += [
        f"  {_plain(one['url'], 80)} does not answer: {_plain(one['error'], 80)}"
        for one in nodes
        if one["error"]
    ]
    failing: dict[str, list[str]] = {}
    for one in alive:
        for name in one["failing"]:
            failing.setdefault(name, []).append(one["node"])
    lines += [
        f"  {_plain(name)} does not answer {', '.join(map(_plain, by))}"
        for name, by in sorted(failing.items())
    ]
    if accounts:
        cells = [_cells(one) for one in accounts[:rows]]
        head = (
            "account", "attempted/s", "admitted/s", "limit/s", "factor", "age", "master", *PERIODS
        )  # fmt: skip
        lines += ["", *table(head, cells, left=1)]
    if len(accounts) > rows:
        lines.append(f"  and {counted(len(accounts) - rows, 'account')} more")
    return lines + [_warning(one, name) for one in accounts[:rows] for name in one["warnings"]]


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    limit, age_us = one["limit"], one["age_us"]
    return (
        _plain(one["account"]),
        rate(one["attempted"]),
        rate(one["admitted"]),
        rate(limit) if limit else "-",
        f"{one['factor']:.3f}",
        "never" if age_us < 0 else f"{age_us / 1_000:,.0f} ms",
        ", ".join(map(_plain, one["masters"])) or "-",
        *(_used(one[name]) for name in PERIODS),
    )


def _used(period: Mapping[str, int]) -> str:
    """What was used of how much; all that was, where there is no limit."""
    used, nominal = period["used"], period["nominal"]
    return f"{used:,} of {nominal:,}" if nominal else f"{used:,}"


def _warning(account: Mapping[str, Any], name: str) -> str:
    period = account[name]
    used, nominal, end = period["used"], period["nominal"], period["restricted_at"]
    share = f"{used * 100 // nominal:,}% of its {name}" if nominal else f"near its {name}"
    what = "restricted until it ends" if used >= end else f"restricted at {end:,}"
    return f"  {_plain(account['account'])} has used {share}: {what}"


def _plain(text: object, chars_max: int = NAME_CHARS_MAX) -> str:
    clean = harmless(str(text)[: chars_max + 1]).replace("\n", " ").replace("\t", " ")
    return clean if len(clean) <= chars_max else clean[: chars_max - 1] + _CUT
