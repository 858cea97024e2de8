"""Verbs: the table of what `sluicegate rules` can do, each with its flags and its examples.

Verbs that run one operation of the rulebook come from the table in `contracts.rule_admin`, flags
and all. A row names the module and the function that runs the verb, `function(arguments) -> int`;
the module is imported when the verb is run. Nothing here imports a package of an extra.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from sluicegate.apps.rulebook.examples import OF_VERBS
from sluicegate.apps.rulebook.settings import RulebookSettings
from sluicegate.contracts.rule_admin import (
    CHANGES,
    FLAG,
    LIVE_REVISION,
    OPERATIONS,
    REQUIRED,
    Argument,
    Operation,
)
from sluicegate.service.settings import add_flags

RULEBOOK_VARIABLE: Final = "SLUICEGATE_RULEBOOK"
COUNT_DEFAULT: Final = "20"


class Verb(NamedTuple):
    """A row of the table."""

    name: str
    help: str
    function: str  # as module:function
    add: Callable[[ArgumentParser], None]
    examples: str


def _init(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the folder to make the rulebook in")
    parser.add_argument(
        "--rules", metavar="PATH", action="append", default=[], help="the first rules"
    )
    parser.add_argument(
        "--alone", action="store_true", help="one person proposes and approves (own_approval = on)"
    )
    parser.add_argument(
        "--repository",
        metavar="DIR",
        default="",
        help="a git repository of yours, in place of a new one: bare, or a clone's .git",
    )
    parser.add_argument(
        "--branch", metavar="NAME", default="main", help="people push to it (default main)"
    )
    parser.add_argument(
        "--blobs",
        metavar="URL",
        default="files:blobs",
        help="where nodes find the rules: files:DIR, s3://... (default files:blobs)",
    )
    parser.add_argument(
        "--events",
        metavar="URL",
        default="files:events",
        help="where changes are announced: files:DIR, kafka://HOST/TOPIC (default files:events)",
    )


def _lint(parser: ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files, and folders of files")
    _semantics(parser)
    _json(parser)


def _convert(parser: ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD", help="a rules file with `limits:`")
    parser.add_argument(
        "-o", "--output", metavar="NEW", default="", help="the file to write [standard output]"
    )


def _list(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("--state", default="", help="in this state: open, approved, ...")
    parser.add_argument(
        "--releases", "--versions", dest="versions", action="store_true", help="list releases"
    )
    parser.add_argument("--files", action="store_true", help="list the files of --at")
    parser.add_argument("--at", metavar="REVISION", default="live", help="(default: live)")
    _count(parser)


def _show(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("id", metavar="ID", help="the id of a proposal, or the name of a file")
    parser.add_argument("--at", metavar="REVISION", default="live", help="of a file")
    parser.add_argument("--html", metavar="FILE", help="write the report of the gate as a page")


def _status(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument(
        "--release", "--version", dest="version", metavar="N", help="wait until nodes run this one"
    )
    _waiting(parser)


def _shadow(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("id", metavar="ID", nargs="?", help="the proposal to judge (again)")
    parser.add_argument(
        "--rules",
        metavar="PATH",
        action="append",
        default=[],
        help="given twice: the rules in force and the candidate, each a file or a folder",
    )
    parser.add_argument("--capture", metavar="DIR", default="", help="captured traffic")
    parser.add_argument("--key", metavar="FILE", default="", help="the key of its redaction")
    parser.add_argument("--envoy-log", metavar="FILE", help="traffic from Envoy's access log")
    parser.add_argument(
        "--map",
        metavar="NAME=FIELD",
        action="append",
        default=[],
        help="of Envoy's log: which field holds the user, path, time, status, priority, ...",
    )
    parser.add_argument(
        "--domain", metavar="NAME", default="", help="of Envoy's log: the mesh's domain"
    )
    parser.add_argument(
        "--descriptor",
        metavar="KEY=FIELD,...",
        action="append",
        default=[],
        help="with --domain, may be repeated: Envoy's descriptors, KEY==TEXT for a constant",
    )
    parser.add_argument("--csv", metavar="FILE", help="traffic from a table with a header")
    parser.add_argument("--jsonl", metavar="FILE", help="traffic from lines of JSON")
    parser.add_argument(
        "--unit",
        choices=("s", "ms", "us", "ns"),
        default="s",
        help="the unit of times that are numbers (default s)",
    )
    parser.add_argument(
        "--bad-rows", metavar="N", default="0", help="how many bad rows to skip (default 0)"
    )
    parser.add_argument("--workers", metavar="N", default="1", help="processes (default 1)")
    parser.add_argument("--html", metavar="FILE", help="write the report as a page")
    _semantics(parser)


def _import_envoy(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("paths", metavar="PATH", nargs="+", help="Envoy's files and folders")
    parser.add_argument("--under", metavar="FOLDER", default="envoy", help="(default envoy)")
    parser.add_argument("--dry-run", action="store_true", help="show what would be proposed")
    parser.add_argument("-m", "--message", default="", help="the change, in one line")
    _confirm(parser)
    _semantics(parser)


def _serve(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rulebook",
        metavar="DIR",
        default="",
        help=f"its folder; else ${RULEBOOK_VARIABLE}, else .",
    )
    add_flags(parser, RulebookSettings)


def _propose(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("paths", metavar="PATH", nargs="*", help="changed files, or a folder")
    parser.add_argument(
        "--under", metavar="FOLDER", default="", help="the folder in the rulebook they belong to"
    )
    parser.add_argument(
        "--remove", metavar="NAME", action="append", default=[], help="delete a file"
    )
    for argument in OPERATIONS["propose"].arguments:
        if argument.kind != CHANGES:
            short = ["-m"] if argument.name == "message" else []
            _add_argument(parser, argument, {"base": LIVE_REVISION}, *short)


def _set(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument(
        "assignments", metavar="RULE.FIELD=VALUE", nargs="+", help="fields of live rules"
    )
    parser.add_argument(
        "--reason", metavar="WHY", default="", help="why; the audit keeps it (must be given)"
    )
    _confirm(parser)
    _waiting(parser)


def _add_operation(operation: Operation, parser: ArgumentParser) -> None:
    """The flags of a verb that runs one operation."""
    _where(parser)
    for argument in operation.arguments:
        if argument.option:
            _add_argument(parser, argument, _DEFAULTS.get(operation.verb, {}))
    if operation.verb in _MORE:
        _MORE[operation.verb](parser)


def _add_argument(
    parser: ArgumentParser, argument: Argument, defaults: Mapping[str, str | None], *short: str
) -> None:
    default = defaults.get(argument.name, argument.default)
    note = (
        "" if default in (REQUIRED, None, "", False) else f" (default {default})".replace("%", "%%")
    )
    options: dict[str, Any] = {"help": _lower(argument.sentence) + note}
    if argument.kind == FLAG:
        parser.add_argument(argument.option, dest=argument.name, action="store_true", **options)
        return
    if argument.choices:
        options["choices"] = argument.choices
    else:
        options["metavar"] = argument.metavar or None
    if default is not REQUIRED:
        options["default"] = default
    if argument.option.startswith("--"):
        options["required"] = default is REQUIRED
        parser.add_argument(*short, argument.option, dest=argument.name, **options)
    else:
        nargs = None if default is REQUIRED else "?"
        parser.add_argument(argument.name, **{**options, "metavar": argument.option}, nargs=nargs)


def _confirm(parser: ArgumentParser) -> None:
    (argument,) = (one for one in OPERATIONS["propose"].arguments if one.name == "confirm")
    _add_argument(parser, argument, {})


def _publish_too(parser: ArgumentParser) -> None:
    parser.add_argument("--publish", action="store_true", help="and make it live at once")


def _verb(name: str, text: str, function: str, add: Callable[[ArgumentParser], None]) -> Verb:
    return Verb(name, text, function, add, OF_VERBS[name])


def _of_operations() -> list[Verb]:
    return [
        _verb(one.verb, _lower(one.summary), "operations:run", partial(_add_operation, one))
        for one in OPERATIONS.values()
        if one.verb
    ]


def _lower(sentence: str) -> str:
    """A sentence as help has it."""
    return f"{sentence[:1].lower()}{sentence[1:]}".rstrip(".")


def _where(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rulebook",
        metavar="DIR|URL",
        default="",
        help=f"its folder, or https://... of its server; else ${RULEBOOK_VARIABLE}, else .",
    )
    parser.add_argument("--ca", metavar="FILE", default="", help="the server's authority")
    parser.add_argument("--cert", metavar="FILE", default="", help="a client certificate")
    parser.add_argument("--cert-key", metavar="FILE", default="", help="its key")
    parser.add_argument("--as", dest="who", metavar="NAME", default="", help="your name")
    _json(parser)


def _json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _count(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--count", metavar="N", default=COUNT_DEFAULT, help=f"at most (default {COUNT_DEFAULT})"
    )


def _waiting(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--wait", metavar="NODES", default="0", help="wait until this many nodes run it"
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", default="30", help="at most this long (default 30)"
    )


def _semantics(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--semantics",
        choices=("sluicegate", "envoy"),
        default="sluicegate",
        help="how rules of Envoy's format count (default sluicegate)",
    )
    parser.add_argument(
        "--merge-domains", action="store_true", help="let several of Envoy's files be of one domain"
    )


# Flags of verbs beside those of their operations, and other defaults than those of the operations.
_MORE: Final[Mapping[str, Callable[[ArgumentParser], None]]] = {
    "approve": _publish_too,
    "publish": _waiting,
    "rollback": _waiting,
}
_DEFAULTS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "audit": {"count_max": COUNT_DEFAULT},
    "canary": {"share": "1%", "kind": None},
}


VERBS: Final = (
    _verb("init", "create a rulebook: repository, blobs, keys", "new_rulebook:init", _init),
    _verb("lint", "say what is wrong with rules files", "rules_files:lint", _lint),
    _verb("convert", "translate a rules file with `limits:`", "rules_files:convert", _convert),
    _verb("list", "proposals, releases or files", "views:list_things", _list),
    _verb("show", "a proposal with its history, or a file", "views:show", _show),
    _verb("propose", "propose changed files", "rules_files:propose", _propose),
    _verb("set", "change a field of a live rule in one step", "assignments:run", _set),
    _verb("shadow", "try rules on captured traffic", "trial:run", _shadow),
    _verb("status", "what the fleet runs", "views:status", _status),
    *_of_operations(),
    _verb(
        "import-envoy",
        "propose the rules of Envoy's rate-limit service",
        "rules_files:import_envoy",
        _import_envoy,
    ),
    _verb("serve", "the admin API, the gate and the publisher", "server:run", _serve),
)
