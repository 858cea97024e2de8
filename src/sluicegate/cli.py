"""The command line: a table of commands, and the one place where errors become exit codes.

A row names a command, says in a line what it is for, and names the module that holds it; that
module is imported when the command is chosen, and offers `EXAMPLES`, `add_arguments(parser)` and
`run(arguments)`. Nothing here imports an optional package.

Exit codes: 0 it did what was asked; 1 it could not; 2 it was asked wrongly; 130 interrupted. An
error is one line, `sluicegate: <what>; <what to do>`; a traceback is a bug of ours.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from typing import Final, NamedTuple, NoReturn, Protocol, cast

from sluicegate import BadValue, SluicegateError, __version__
from sluicegate.command_line.text import harmless
from sluicegate.contracts.errors import MissingPackage

DONE: Final = 0
COULD_NOT: Final = 1
ASKED_WRONGLY: Final = 2
INTERRUPTED: Final = 130

DESCRIPTION: Final = (
    "Sluicegate decides for every unit of work whether it may enter now, later, or not at all."
)
EXAMPLES: Final = """\
examples:
  sluicegate up                 every service with a console and a demo load, to look at
  sluicegate limits check FILE  what a rules file says, in words
  sluicegate limiter --rules D  a rate-limit service for a mesh, a gateway, a program
  sluicegate kv                 a key-value store for many tenants, with quotas and shedding
  sluicegate pubsub             channels to publish and subscribe to, with limits for accounts
  sluicegate images serve       images of a catalogue, resized on demand and stored once
  sluicegate console            see in a browser what services admit and refuse, and why
  sluicegate top                the same in a terminal
  sluicegate rules status       what the nodes that follow a rulebook run
  sluicegate lab run overload   a claim about overload, tried on virtual time
  sluicegate resilience serve   a WSGI application behind a queue: Flask, Django
  sluicegate resilience drill   what breaks a service of yours: overload, slow dependencies
  sluicegate doctor             what is compiled, what is present, what is missing
  sluicegate up --help          the flags of a command, with examples
"""


class CommandEntry(NamedTuple):
    """A row of the table. `extra` is the pip extra that brings what the command needs."""

    name: str
    help: str
    module: str
    extra: str = ""


COMMANDS: Final = (
    CommandEntry(
        "up",
        "run every service that is installed, a console, and a load that tells a story",
        "sluicegate.apps.up.command",
        extra="server",
    ),
    CommandEntry(
        "limits",
        "explain a rules file, try requests on it, or break the glass",
        "sluicegate.apps.limits.command",
        extra="rules",
    ),
    CommandEntry(
        "lab",
        "try claims about overload on virtual time",
        "sluicegate.lab.command",
    ),
    CommandEntry(
        "limiter",
        "the rate-limit service: gRPC, Envoy, RESP and HTTP on one port",
        "sluicegate.apps.limiter.command",
        extra="server",
    ),
    CommandEntry(
        "kv",
        "the dispatcher: a key-value store for many tenants that stays up under any load",
        "sluicegate.apps.kv.command",
        extra="kv",
    ),
    CommandEntry(
        "pubsub",
        "channels to publish and subscribe to: nothing accepted is lost silently",
        "sluicegate.apps.pubsub.command",
        extra="server",
    ),
    CommandEntry(
        "images",
        "images in any size and format: stored once, processed once, failures remembered",
        "sluicegate.apps.images.command",
        extra="images",
    ),
    CommandEntry(
        "console",
        "a page of what limiters and dispatchers admit and refuse, and why, live",
        "sluicegate.apps.console.command",
        extra="server",
    ),
    CommandEntry(
        "top",
        "the same in a terminal: what services admit and refuse, and why, live",
        "sluicegate.apps.console.top",
    ),
    CommandEntry(
        "resilience",
        "serve a WSGI application behind a queue; plan and drill any service",
        "sluicegate.apps.resilience.command",
    ),
    CommandEntry(
        "quota",
        "propose quotas by what callers have used, and file them with the rulebook",
        "sluicegate.apps.quota.command",
        extra="rules",
    ),
    CommandEntry(
        "rules",
        "rules in git: propose, try, approve, publish, roll back; and who runs what",
        "sluicegate.apps.rulebook.command",
        extra="rulebook",
    ),
    CommandEntry(
        "why",
        "ask a running limiter or dispatcher why a user was refused",
        "sluicegate.apps.limiter.why",
    ),
    CommandEntry(
        "dlq",
        "show, check and replay what was decided without the store",
        "sluicegate.apps.dlq.command",
        extra="kafka",
    ),
    CommandEntry(
        "doctor",
        "say what is compiled, present and missing, and the command that gets it",
        "sluicegate.apps.doctor",
    ),
)


class CommandModule(Protocol):
    """What a command's module offers."""

    EXAMPLES: str

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the flags."""

    def run(self, arguments: Namespace) -> int:
        """Do it, and return the exit code."""


_PORTS: Final = ("--port", "--host", "--bind", "--address")  # of other servers
_NEAR: Final = 0.75  # as alike as that, of 1


class Parser(ArgumentParser):
    """Errors in one line, as everywhere in sluicegate."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Parse; a flag that is not there is named before its value is taken for something else."""
        given = list(sys.argv[1:] if args is None else args)
        unknown = self._unknown_flag(given)
        if unknown:
            self.error(f"there is no flag {unknown}{self._flag_meant(unknown)}")
        return super().parse_known_args(given, namespace)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where the right is to be found."""
        self.exit(ASKED_WRONGLY, f"sluicegate: {message}; see {self.prog} --help\n")

    def _unknown_flag(self, given: list[str]) -> str:
        """The first that is not one of this parser's, if it comes before a verb."""
        flags = self._option_string_actions
        takes_verb = self._subparsers is not None
        at = 0
        while at < len(given) and given[at] != "--":
            name, _, value = given[at].partition("=")
            at += 1
            if not name.startswith("--"):
                if takes_verb and not name.startswith("-"):
                    break  # the rest is for its own parser
                continue
            if name not in flags:
                return name
            if flags[name].nargs != 0 and not value and at < len(given):
                at += not given[at].startswith("-")  # it is a value
        return ""

    def _flag_meant(self, unknown: str) -> str:
        flags = self._option_string_actions
        if unknown in _PORTS and "--listen" in flags:
            return "; give --listen HOST:PORT"
        near = get_close_matches(unknown[2:], [name[2:] for name in flags], 1, _NEAR)
        return f"; did you mean --{near[0]}?" if near else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is returned."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _be_lenient_in_writing()
    try:
        return _main(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain of it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _main(arguments: list[str]) -> int:
    first = arguments[0] if arguments else "--help"
    if first in {"-h", "--help"}:
        _parser().print_help()
        return DONE
    if first == "--version":
        sys.stdout.write(f"sluicegate {__version__}\n")
        return DONE
    command = next((command for command in COMMANDS if command.name == first), None)
    if command is None:
        return _fail(_unknown(first), ASKED_WRONGLY)
    return _run(command, arguments[1:])


def _run(command: CommandEntry, arguments: list[str]) -> int:
    module = cast("CommandModule", import_module(command.module))
    parser = Parser(
        prog=f"sluicegate {command.name}",
        description=f"{command.help[0].upper()}{command.help[1:]}.",
        epilog=module.EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    try:
        return module.run(parser.parse_args(arguments))
    except BadValue as error:
        return _fail(str(error), ASKED_WRONGLY)
    except SluicegateError as error:
        return _fail(str(error), COULD_NOT)
    except ModuleNotFoundError as error:
        # One of our own that is missing is a bug, and so is one that no extra brings.
        if not command.extra or error.name is None or error.name.startswith("sluicegate"):
            raise
        return _fail(str(MissingPackage(error.name, command.extra)), COULD_NOT)


def _parser() -> Parser:
    width = max(len(command.name) for command in COMMANDS)
    rows = "\n".join(f"  {command.name:<{width}}   {command.help}" for command in COMMANDS)
    parser = Parser(
        prog="sluicegate",
        usage="sluicegate COMMAND ...",
        description=f"{DESCRIPTION}\n\ncommands:\n{rows}",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version")
    return parser


def _unknown(name: str) -> str:
    names = [command.name for command in COMMANDS]
    near = get_close_matches(name, names, 1)
    kind = "flag" if name.startswith("-") else "command"
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"there is no {kind} {name!r}; {hint}there are {', '.join(names)}; see sluicegate --help"


def _fail(sentence: str, code: int) -> int:
    # Some of it may be what a server, or whoever pushed a commit, has written.
    sys.stderr.write(f"sluicegate: {harmless(sentence)}\n")
    return code


def _be_lenient_in_writing() -> None:
    """A terminal that lacks a character is shown its escape, and not our traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
