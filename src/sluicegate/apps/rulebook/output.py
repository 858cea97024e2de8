"""Output: results of a rulebook, as people read them, or as JSON."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any, Final

from sluicegate.command_line.text import ago, counted, harmless, table
from sluicegate.contracts.rule_admin import Answer
from sluicegate.shadow.report.report import describe_basis, describe_newly_refused, has_figures
from sluicegate.system import now_us

PUBLISHING: Final = "publishing"  # the failure to sign, store or announce a decision
ID_SHOWN: Final = 10
_PERCENT: Final = 100  # parts of 10,000
# Also what turns the direction of writing; a tab and the end of a line may be in a text.
_RESULT_SAID: Final = "Not judged: "


def write(*lines: str) -> None:
    """Lines to standard output."""
    sys.stdout.write("\n".join(map(harmless, lines)) + "\n")


def write_text(text: str) -> None:
    """A file to standard output: as it is to a program, harmless to a terminal."""
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)


def write_json(value: object) -> None:
    """The same for programs."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def show(arguments: Namespace, value: Any, show_value: Callable[[Any], object]) -> int:
    """A result for people, or as JSON where --json says so."""
    if arguments.json:
        write_json(value)
    else:
        show_value(value)
    return 0


def show_result(result: Answer) -> None:
    """A proposal, or the fleet, whichever an operation has returned."""
    if "nodes" in result:
        show_fleet(result)
    else:
        show_proposal(result)


def short(id_: str) -> str:
    """So much of an id as people need."""
    return id_[:ID_SHOWN]


def share_words(parts: int) -> str:
    """A share of 10,000 as a percentage."""
    return f"{parts / _PERCENT:g}%"


def show_proposals(proposals: Sequence[Answer]) -> None:
    """A row each."""
    now = now_us()
    rows = [
        (
            short(one["id"]),
            one["state"],
            str(one["version"] or "-"),
            one["judged"],
            one["proposer"],
            ago(now - one["at_us"]),
            one["message"],
        )
        for one in proposals
    ]
    head = ("id", "state", "release", "gate", "by", "when", "what")
    write(*(table(head, rows) if rows else ["no proposals"]))


def show_proposal(one: Answer) -> None:
    """All of it: who, what, why, and what befell it."""
    now = now_us()
    lines = [
        one["message"],
        "",
        f"  id        {one['id']}",
        f"  state     {one['state']}" + (f", release {one['version']}" if one["version"] else ""),
        f"  proposer  {one['proposer']}, {ago(now - one['at_us'])}",
    ]
    if one["reason"]:
        lines.append(f"  reason    {one['reason']}")
    verdict = one["verdict"]
    if verdict is not None:
        lines.append(f"  gate      {verdict_words(verdict['result'], verdict['sentence'])}")
        classes = describe_newly_refused(verdict.get("newly_refused") or ())
        lines.append(f"  refuses   newly, by class: {classes}")
        if has_figures(verdict.get("report") or {}):
            lines.append(f"  basis     {describe_basis(verdict['report'])}")
    if one["approvals"]:
        lines.append(f"  approved  by {', '.join(one['approvals'])}")
    if one["override"]:
        lines.append(f"  override  {one['override']}")
    history = one.get("history") or ()
    if history:
        rows = [
            (ago(now - it["at_us"]), it["by"], it["what"], without_result(it["why"]))
            for it in history
        ]
        lines += ["", *table(("when", "who", "what", "why"), rows)]
    write(*lines)
    print_failures(one)


def show_versions(versions: Sequence[Answer]) -> None:
    """A row each."""
    now = now_us()
    rows = [
        (
            str(one["version"]),
            "live" if one["live"] else "canary" if one["canary"] else "",
            one["kind"],
            short(one["commit"]),
            one["by"],
            ago(now - one["at_us"]),
            one["why"],
        )
        for one in versions
    ]
    head = ("release", "now", "as", "revision", "by", "when", "why")
    write(*(table(head, rows) if rows else ["no releases yet"]))


def show_files(rules: Answer) -> None:
    """The files of a revision."""
    rows = [
        (one["name"], one["format"] or "-", str(one["rules"] or "-"), one["digest"])
        for one in rules["files"]
    ]
    release = f"release {rules['version']}, " if rules.get("version") else ""
    write(f"{release}revision {rules['commit']}", "")
    write(*(table(("file", "format", "rules", "digest"), rows) if rows else ["no files"]))


def show_fleet(status: Answer) -> None:
    """What is to run, and what each node runs."""
    now = now_us()
    live, canary, rollout = status["live"], status["canary"], status["orders"]
    lines = ["no release is live yet"]
    if live is not None:
        numbers = f"release {live['version']} (revision {short(live['commit'])})"
        lines = [f"{numbers} is live, {ago(now - live['at_us'])}: {live['why']}"]
    if canary is not None:
        share = f"{share_words(canary['share'])} of the {canary['by']}"
        age = ago(now - canary["since_us"])
        lines.append(f"release {canary['version']} is a canary for {share}, {age}")
    if rollout is not None:
        lines.append(f"rollout {rollout['number']} says so to the nodes")
        lines += [f"{node} is pinned to release {at}" for node, at in rollout["pins"].items()]
    rows = [_node_row(one) for one in status["nodes"]]
    head = ("node", "release", "canary release", "rollout", "took", "heard", "trouble")
    lines += ["", *(table(head, rows) if rows else ["no node has reported"])]
    write(*lines)
    print_failures(status)


def show_audit(entries: Sequence[Answer]) -> None:
    """A row each."""
    now = now_us()
    rows = [
        (
            ago(now - one["at_us"]),
            one["by"],
            one["result"],
            one["sentence"],
            without_result(one["why"]),
        )
        for one in entries
    ]
    write(*(table(("when", "who", "came of it", "what", "why"), rows) if rows else ["nothing yet"]))


def _node_row(one: dict[str, Any]) -> tuple[str, ...]:
    age = ago(one["age_us"]) + (" (stale)" if one["stale"] else "")
    if "version" not in one:
        return one["node"], "?", "", "", "", age, one["trouble"]
    took = f"{one['took_us'] / 1_000:,.0f} ms"
    return (
        one["node"],
        str(one["version"]),
        str(one["canary"] or "-"),
        f"{one['orders']}" + (f" ({one['behind']} behind)" if one["behind"] else ""),
        took,
        age,
        one["trouble"] or "-",
    )


def print_failures(result: Answer) -> None:
    """What does not go as it should, a line each, beside what was asked for."""
    for what, why in (result.get("troubles") or {}).items():
        words = why if why.startswith(what) else f"{what}: {why}"
        if what == PUBLISHING:
            words += "; the decision stands, and sluicegate rules status delivers it"
        sys.stderr.write(f"sluicegate: {harmless(words)}\n")


def print_unreached(fleet: Answer, version: int, *, nodes: int, timeout_s: float) -> None:
    """That fewer nodes than were waited for run a version."""
    running = sum(
        one.get("version", 0) >= version and not one["stale"] for one in fleet.get("nodes") or ()
    )
    sys.stderr.write(
        f"sluicegate: after {timeout_s:g} s release {version} runs on {running:,} of "
        f"{counted(nodes, 'node')}\n"
    )


def verdict_words(result: str, sentence: str) -> str:
    """What the gate found, and its sentence."""
    return f"{result}: {_small(without_result(sentence))}"


def without_result(sentence: str) -> str:
    """A sentence of the gate without the result that stands beside it."""
    return sentence.removeprefix(_RESULT_SAID)


def _small(sentence: str) -> str:
    """Begun as it goes on behind a colon."""
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def show_diff(found: Answer) -> None:
    """Files by their lines, then rules by their names."""
    lines = [line for one in found["files"] for line in one["lines"]]
    rules = found["rules"]
    kinds = [(what, ", ".join(rules[what])) for what in ("added", "removed", "changed")]
    lines += [f"{what}: {names}" for what, names in kinds if names]
    if rules["more"]:
        lines.append(f"and {rules['more']:,} more rules")
    write(*(lines or ["no difference"]))
