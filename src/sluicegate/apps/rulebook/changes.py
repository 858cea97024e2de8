"""Changing: propose, approve, reject, publish, widen, take back, pin."""

from __future__ import annotations

from argparse import Namespace
from typing import Final, NamedTuple

from sluicegate.apps.rulebook.location import Place, the_rulebook
from sluicegate.apps.rulebook.output import (
    show_fleet,
    show_proposal,
    tell_unreached,
    write,
    write_json,
)
from sluicegate.apps.rulebook.rules_files import texts_of
from sluicegate.apps.rulebook.settings import PARTS
from sluicegate.command_line.text import counted
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule_admin import Answer
from sluicegate.contracts.rulebook import BY_CALLERS
from sluicegate.service.settings import SHARE, seconds, whole

_VERSIONS_MAX: Final = 1 << 53
_NODES_MAX: Final = 1_000_000
_WAIT_S_MAX: Final = 3_600.0
_PUBLISHING: Final = "publishing"  # the trouble of what could not be signed, stored or told


class Patience(NamedTuple):
    """How many nodes are waited for, and how long."""

    nodes: int
    timeout_s: float


def run(arguments: Namespace) -> int:
    """Do the verb, and show what came of it."""
    with the_rulebook(arguments) as place:
        if arguments.verb == "propose":
            return _shown(arguments, _propose(arguments, place))
        if arguments.verb == "approve":
            return _approve(arguments, place)
        if arguments.verb == "reject":
            said = place.desk.reject(arguments.id, reason=arguments.reason, by=place.by)
            return _shown(arguments, said)
        if arguments.verb == "publish":
            patience = _patience(arguments)
            said = place.desk.publish(arguments.id, by=place.by)
            return _live(arguments, place, said, said["version"], patience)
        if arguments.verb == "canary":
            return _canary(arguments, place)
        if arguments.verb == "rollback":
            patience = _patience(arguments)
            said = place.desk.roll_back(arguments.to, reason=arguments.reason, by=place.by)
            return _live(arguments, place, said, said["live"]["version"], patience)
        return _pin(arguments, place)


def _propose(arguments: Namespace, place: Place) -> Answer:
    changes: dict[str, str | None] = dict.fromkeys(arguments.remove)
    if arguments.paths:
        changes.update(texts_of(arguments.paths, under=arguments.under))
    if not changes:
        raise BadValue("PATH", [], "give files or folders, or --remove NAME")
    return place.desk.propose(
        changes,
        base=arguments.base,
        message=arguments.message,
        reason=arguments.reason,
        by=place.by,
    )


def _approve(arguments: Namespace, place: Place) -> int:
    said = place.desk.approve(arguments.id, override=arguments.override, by=place.by)
    if arguments.publish:
        said = place.desk.publish(arguments.id, by=place.by)
    _shown(arguments, said)
    return _told(said) if arguments.publish else 0


def _canary(arguments: Namespace, place: Place) -> int:
    parts = _parts(arguments.share)
    kind = arguments.by or _kind_now(place)
    said = place.desk.canary(arguments.id, share=parts, kind=kind, by=place.by)
    _shown(arguments, said)
    return _told(said)


def _parts(said: str) -> int:
    """A share of 10,000. What could mean everybody, or nobody, must say so."""
    value: float = SHARE(said, "--share")
    parts = round(value * PARTS)
    if value == 1 and not said.endswith("%"):
        raise BadValue("--share", said, "write 1% or 100%, whichever you mean")
    if value and not parts:
        raise BadValue("--share", said, "give at least 0.01%, or 0 to take it back")
    return parts


def _kind_now(place: Place) -> str:
    """What the canary that is under way is a share of; callers, where there is none."""
    canary = place.desk.status(by=place.by)["canary"]
    return str(canary["by"]) if canary else BY_CALLERS


def _pin(arguments: Namespace, place: Place) -> int:
    version = whole(0, _VERSIONS_MAX)(arguments.version, "VERSION")
    said = place.desk.pin(arguments.node, version, reason=arguments.reason, by=place.by)
    _shown(arguments, said)
    return _told(said)


def _patience(arguments: Namespace) -> Patience:
    """How many nodes are waited for; asked before anything is changed."""
    nodes = whole(0, _NODES_MAX)(arguments.wait, "--wait")
    return Patience(nodes, seconds(0.1, _WAIT_S_MAX)(arguments.timeout, "--timeout"))


def _live(
    arguments: Namespace, place: Place, said: Answer, version: int, patience: Patience
) -> int:
    """What is live now; with --wait, once so many nodes run it."""
    nodes, timeout_s = patience
    if not nodes:
        _shown(arguments, said)
        return _told(said)
    if not arguments.json:
        write(f"version {version} is live; waiting for {counted(nodes, 'node')}")
    fleet = place.desk.wait(version, nodes=nodes, timeout_s=timeout_s, by=place.by)
    _shown(arguments, fleet)
    if not fleet["reached"]:
        tell_unreached(fleet, version, nodes=nodes, timeout_s=timeout_s)
        return 1
    return 0


def _told(said: Answer) -> int:
    """1 where it is decided, and nodes cannot hear of it yet."""
    return int(_PUBLISHING in (said.get("troubles") or {}))


def _shown(arguments: Namespace, said: Answer) -> int:
    """A proposal, or the fleet, whichever the desk has answered with."""
    if arguments.json:
        write_json(said)
    elif "nodes" in said:
        show_fleet(said)
    else:
        show_proposal(said)
    return 0
