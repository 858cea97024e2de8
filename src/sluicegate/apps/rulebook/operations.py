"""Operations: the verbs that run one operation of the rulebook's table, and show its result."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sluicegate.apps.rulebook import output
from sluicegate.apps.rulebook.location import the_rulebook
from sluicegate.command_line.text import counted
from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule_admin import (
    COUNT,
    NODES_MAX,
    OPERATIONS,
    SHARE,
    SHARE_MAX,
    WHOLE,
    Answer,
    Argument,
    RuleAdmin,
)
from sluicegate.contracts.rulebook import BY_CALLERS
from sluicegate.service.settings import SHARE as SHARE_SETTING
from sluicegate.service.settings import seconds, whole

COUNT_MAX: Final = 10_000
_WAIT_S_MAX: Final = 3_600.0
_PRINTERS: Final[Mapping[str, Callable[[Any], None]]] = {
    "Diff": output.show_diff,
    "Audit": output.show_audit,
}


class Waiting(NamedTuple):
    """How many nodes to wait for, and how long."""

    nodes: int
    timeout_s: float


def run(arguments: Namespace) -> int:
    """Run the operation of the verb, and show its result; the exit code."""
    operation = next(one for one in OPERATIONS.values() if one.verb == arguments.verb)
    values = {
        argument.name: value_of(argument, getattr(arguments, argument.name))
        for argument in operation.arguments
    }
    waiting = waiting_of(arguments) if hasattr(arguments, "wait") else Waiting(0, 0.0)
    with the_rulebook(arguments) as (admin, by):
        if operation.name == "canary" and values["kind"] is None:
            values["kind"] = _kind_now(admin, by)
        result = admin.call(operation, values, by=by)
        delivers = operation.delivers
        if operation.name == "approve" and arguments.publish:
            result, delivers = admin.publish(arguments.id, by=by), True
        if waiting.nodes:
            version = result["version"] if "version" in result else result["live"]["version"]
            if not arguments.json:
                nodes = counted(waiting.nodes, "node")
                output.write(f"release {version} is live; waiting for {nodes}")
            return wait(arguments, admin, by, version, waiting)
    output.show(arguments, result, _PRINTERS.get(operation.result, output.show_result))
    return report_delivery(result) if delivers else 0


def report_delivery(result: Answer) -> int:
    """1 where it is decided, and nodes cannot learn of it yet."""
    return int(output.PUBLISHING in (result.get("troubles") or {}))


def value_of(argument: Argument, value: Any) -> Any:
    """An argument as it was typed, parsed by its kind."""
    if value is None:
        return None
    if argument.kind == SHARE:
        return _parts(value, argument.option)
    if argument.kind in (WHOLE, COUNT):
        most = COUNT_MAX if argument.kind == COUNT else argument.most
        return whole(argument.least, most)(value, argument.option)
    return value


def waiting_of(arguments: Namespace) -> Waiting:
    """What --wait and --timeout say; parsed before anything is changed."""
    nodes = whole(0, NODES_MAX)(arguments.wait, "--wait")
    return Waiting(nodes, seconds(0.1, _WAIT_S_MAX)(arguments.timeout, "--timeout"))


def wait(
    arguments: Namespace, admin: RuleAdmin, by: Identity, version: int, waiting: Waiting
) -> int:
    """Wait for nodes to run a release; 1 if fewer do in time."""
    nodes, timeout_s = waiting
    fleet = admin.wait(version, nodes=nodes, timeout_s=timeout_s, by=by)
    output.show(arguments, fleet, output.show_fleet)
    if fleet["reached"]:
        return 0
    output.print_unreached(fleet, version, nodes=nodes, timeout_s=timeout_s)
    return 1


def _parts(text: str, option: str) -> int:
    """A share of 10,000. What could mean everybody, or nobody, must say so."""
    value: float = SHARE_SETTING(text, option)
    parts = round(value * SHARE_MAX)
    if value == 1 and not text.endswith("%"):
        raise BadValue(option, text, "write 1% or 100%, whichever you mean")
    if value and not parts:
        raise BadValue(option, text, "give at least 0.01%, or 0 to take it back")
    return parts


def _kind_now(admin: RuleAdmin, by: Identity) -> str:
    """What the canary that is under way is a share of; callers, where there is none."""
    canary: Answer | None = admin.status(by=by)["canary"]
    return str(canary["by"]) if canary else BY_CALLERS
