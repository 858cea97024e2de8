"""Verbs: the table of what `sluicegate rules` can do, each with its flags and its examples.

A row names the module and the function that does it, `function(arguments) -> int`; the module is
imported when the verb is done. Nothing here imports a package that an extra brings.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Final, NamedTuple

from sluicegate.apps.rulebook import examples
from sluicegate.apps.rulebook.settings import RulebookSettings
from sluicegate.service.settings import add_flags

RULEBOOK_VARIABLE: Final = "SLUICEGATE_RULEBOOK"


class Verb(NamedTuple):
    """A row of the table."""

    name: str
    help: str
    function: str  # as module:function
    add: Callable[[ArgumentParser], None]
    examples: str


def _init(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="where the rulebook is to live")
    parser.add_argument(
        "--rules", metavar="PATH", action="append", default=[], help="rules to begin with"
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
        "--branch", metavar="NAME", default="main", help="that people push to (default main)"
    )
    parser.add_argument(
        "--blobs",
        metavar="URL",
        default="files:blobs",
        help="where nodes are to find the rules: files:DIR, s3://... (default files:blobs)",
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


def _diff(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument(
        "before", metavar="A", nargs="?", default="live", help="a revision (default: live)"
    )
    parser.add_argument("after", metavar="B", help="a revision: live, a version, a commit, an id")


def _list(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("--state", default="", help="only those: open, approved, live, ...")
    parser.add_argument("--versions", action="store_true", help="the editions instead")
    parser.add_argument("--files", action="store_true", help="the files of --at instead")
    parser.add_argument("--at", metavar="REVISION", default="live", help="(default: live)")
    _count(parser)


def _show(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("id", metavar="ID", help="of a proposal, or the name of a file")
    parser.add_argument("--at", metavar="REVISION", default="live", help="of a file")
    parser.add_argument("--html", metavar="FILE", help="write the report of the gate as a page")


def _propose(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("paths", metavar="PATH", nargs="*", help="changed files, or a folder")
    parser.add_argument(
        "--under", metavar="FOLDER", default="", help="the folder in the rulebook they belong to"
    )
    parser.add_argument(
        "--remove", metavar="NAME", action="append", default=[], help="take a file out"
    )
    parser.add_argument("--base", metavar="REVISION", default="live", help="what was changed")
    parser.add_argument("-m", "--message", required=True, help="what changes, in a line")
    parser.add_argument("--reason", default="", help="and why")


def _approve(parser: ArgumentParser) -> None:
    _where(parser)
    _id(parser)
    parser.add_argument(
        "--override", metavar="WHY", default="", help="approve what the gate could not judge"
    )
    parser.add_argument("--publish", action="store_true", help="and make it live at once")


def _reject(parser: ArgumentParser) -> None:
    _where(parser)
    _id(parser)
    _reason(parser)


def _publish(parser: ArgumentParser) -> None:
    _where(parser)
    _id(parser)
    _waiting(parser)


def _canary(parser: ArgumentParser) -> None:
    _where(parser)
    _id(parser)
    parser.add_argument(
        "--share", default="1%", help="of callers or nodes; 0 takes it back (default 1%%)"
    )
    parser.add_argument(
        "--by",
        choices=("callers", "nodes"),
        help="what it is a share of (default callers, or as it is so far)",
    )


def _status(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("--version", metavar="N", help="wait until nodes run this version")
    _waiting(parser)


def _rollback(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("to", metavar="REVISION", help="a version, or a commit")
    _reason(parser)
    _waiting(parser)


def _pin(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("node", metavar="NODE")
    parser.add_argument("version", metavar="VERSION", help="to run; 0 lets it follow again")
    _reason(parser)


def _shadow(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("id", metavar="ID", nargs="?", help="of a proposal, to be tried (again)")
    parser.add_argument(
        "--rules",
        metavar="PATH",
        action="append",
        default=[],
        help="said twice: the rules in force and those to be tried, each a file or a folder",
    )
    parser.add_argument("--capture", metavar="DIR", default="", help="captured traffic")
    parser.add_argument("--key", metavar="FILE", default="", help="the key of its redaction")
    parser.add_argument("--envoy-log", metavar="FILE", help="traffic from Envoy's access log")
    parser.add_argument(
        "--map",
        metavar="NAME=FIELD",
        action="append",
        default=[],
        help="of Envoy's log: which field says the user, path, time, status, priority, ...",
    )
    parser.add_argument(
        "--domain", metavar="NAME", default="", help="of Envoy's log: whose asks they are of a mesh"
    )
    parser.add_argument(
        "--descriptor",
        metavar="KEY=FIELD,...",
        action="append",
        default=[],
        help="with --domain, may be said again: what Envoy would ask, KEY==TEXT for a constant",
    )
    parser.add_argument("--csv", metavar="FILE", help="traffic from a table with a header")
    parser.add_argument("--jsonl", metavar="FILE", help="traffic from lines of JSON")
    parser.add_argument(
        "--unit",
        choices=("s", "ms", "us", "ns"),
        default="s",
        help="of times that are numbers (default s)",
    )
    parser.add_argument(
        "--bad-rows", metavar="N", default="0", help="rows that may be bad, and are left out (0)"
    )
    parser.add_argument("--workers", metavar="N", default="1", help="processes (default 1)")
    parser.add_argument("--html", metavar="FILE", help="write the report as a page")
    _semantics(parser)


def _import_envoy(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files and folders of Envoy's")
    parser.add_argument("--under", metavar="FOLDER", default="envoy", help="(default envoy)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be proposed")
    parser.add_argument("-m", "--message", default="", help="what changes, in a line")
    _semantics(parser)


def _audit(parser: ArgumentParser) -> None:
    _where(parser)
    _count(parser)


def _serve(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rulebook",
        metavar="DIR",
        default="",
        help=f"its folder; else ${RULEBOOK_VARIABLE}, else .",
    )
    add_flags(parser, RulebookSettings)


VERBS: Final = (
    Verb(
        "init",
        "make a rulebook: repository, blobs, keys",
        "new_rulebook:init",
        _init,
        examples.INIT,
    ),
    Verb("lint", "say what is wrong with rules files", "rules_files:lint", _lint, examples.LINT),
    Verb("list", "proposals, versions or files", "views:run", _list, examples.LIST),
    Verb("show", "a proposal with its history, or a file", "views:run", _show, examples.SHOW),
    Verb("diff", "what changes between two revisions", "views:run", _diff, examples.DIFF),
    Verb("propose", "propose changed files", "changes:run", _propose, examples.PROPOSE),
    Verb("shadow", "try rules on captured traffic", "trial:run", _shadow, examples.SHADOW),
    Verb("approve", "approve a proposal", "changes:run", _approve, examples.APPROVE),
    Verb("reject", "turn a proposal down", "changes:run", _reject, examples.REJECT),
    Verb("publish", "make an approved proposal live", "changes:run", _publish, examples.PUBLISH),
    Verb(
        "canary", "let a share of callers or nodes have it", "changes:run", _canary, examples.CANARY
    ),
    Verb("status", "what the fleet runs", "views:run", _status, examples.STATUS),
    Verb("rollback", "make earlier rules live again", "changes:run", _rollback, examples.ROLLBACK),
    Verb("pin", "have one node run a version", "changes:run", _pin, examples.PIN),
    Verb("audit", "who did what, and who was refused", "views:run", _audit, examples.AUDIT),
    Verb(
        "import-envoy",
        "take over rules of Envoy's rate-limit service",
        "rules_files:import_envoy",
        _import_envoy,
        examples.IMPORT_ENVOY,
    ),
    Verb(
        "serve", "the admin API, the gate and the publisher", "serving:run", _serve, examples.SERVE
    ),
)


def _where(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rulebook",
        metavar="DIR|URL",
        default="",
        help=f"its folder, or https://... of its server; else ${RULEBOOK_VARIABLE}, else .",
    )
    parser.add_argument("--ca", metavar="FILE", default="", help="of the server's certificate")
    parser.add_argument("--cert", metavar="FILE", default="", help="a client certificate")
    parser.add_argument("--cert-key", metavar="FILE", default="", help="its key")
    parser.add_argument("--as", dest="who", metavar="NAME", default="", help="who is acting here")
    _json(parser)


def _id(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="of the proposal, or its beginning")


def _json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")


def _count(parser: ArgumentParser) -> None:
    parser.add_argument("--count", metavar="N", default="20", help="at most (default 20)")


def _reason(parser: ArgumentParser) -> None:
    parser.add_argument("--reason", metavar="WHY", required=True, help="kept with it")


def _waiting(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--wait", metavar="NODES", default="0", help="wait until so many nodes run it"
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", default="30", help="for so long at most (default 30)"
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
