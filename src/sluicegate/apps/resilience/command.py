"""The command `sluicegate resilience`: its verbs. What a verb needs is imported when it runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import Any, Final, NamedTuple

from sluicegate.command_line.verbs import add_verb

EXAMPLES: Final = """\
examples:
  sluicegate resilience plan resilience.toml       what a call costs at worst, what twenty leave
  sluicegate resilience drill -- python service.py --port {port}
  sluicegate resilience drill --help               the flags of a drill
  sluicegate resilience serve shop:app --workers 4  a WSGI application behind a queue
"""


class ResilienceVerb(NamedTuple):
    """One row: a module with `EXAMPLES`, `add_arguments` and `run`."""

    name: str
    help: str
    module: str


VERBS: Final = (
    ResilienceVerb(
        "plan", "what calls cost at worst, and what availability their settings leave", "plan"
    ),
    ResilienceVerb(
        "drill",
        "put a service of yours through overload and failing dependencies, and say what broke",
        "drill.command",
    ),
    ResilienceVerb(
        "serve",
        "serve a WSGI application: a queue in front of worker processes",
        "serve.command",
    ),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the verbs and their flags."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        module = _module(verb.module)
        module.add_arguments(add_verb(verbs, verb.name, verb.help, module.EXAMPLES))


def run(arguments: Namespace) -> int:
    """Run the verb."""
    (module,) = (verb.module for verb in VERBS if verb.name == arguments.verb)
    code: int = _module(module).run(arguments)
    return code


def _module(name: str) -> Any:
    return import_module(f"sluicegate.apps.resilience.{name}")
