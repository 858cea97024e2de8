"""The command `sluicegate limits`: its verbs, their flags, and who runs them.

Light to import: what reads rules is imported when a verb is run.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from sluicegate.apps.limits import glass
from sluicegate.command_line.verbs import add_verb

EXAMPLES: Final = """\
examples:
  sluicegate limits check rules.yaml                  what each rule does, and what is odd
  sluicegate limits try rules.yaml --request @login.json --times 6
  sluicegate limits glass list                        what is not enforced just now
  sluicegate limits check --help                      the flags of a verb, with examples
"""

CHECK_EXAMPLES: Final = """\
examples:
  sluicegate limits check rules.yaml                  a table in words, then advice
  sluicegate limits check --strict deploy/*.toml      exit code 1 for advice too, for CI
  sluicegate limits check deploy/limiter/rules        a service's rules, as it reads them
  sluicegate limits check --format json rules.yaml

exit code: 0 the files can be used; 1 one of them cannot; 2 asked wrongly
"""

TRY_EXAMPLES: Final = """\
examples:
  sluicegate limits try rules.yaml --request '{"path": "/login", "method": "POST"}' --times 6
  sluicegate limits try rules.yaml --request @request.json --times 20 --every 100ms
  echo '{"path": "/", "user": "ann"}' | sluicegate limits try rules.yaml --request -

a request has the fields path, method (GET), address (127.0.0.1), user and headers, a mapping:
  {"path": "/api/x", "address": "10.0.0.1", "headers": {"x-plan": "free"}, "user": "ann"}

exit code: 0 it was tried, whatever was decided; 2 asked wrongly, or the file cannot be used
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs and their flags."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    purpose = "explain rules files, and list errors and oddities"
    check = add_verb(verbs, "check", purpose, CHECK_EXAMPLES)
    check.add_argument(
        "files", metavar="FILE", nargs="+", help=".yaml, .yml or .toml; or a folder of a service"
    )
    check.add_argument("--strict", action="store_true", help="exit code 1 for advice too")
    _add_format(check)
    purpose = "send a made-up request through a rules file, on virtual time"
    steps = add_verb(verbs, "try", purpose, TRY_EXAMPLES)
    steps.add_argument("file", metavar="FILE", help=".yaml, .yml or .toml")
    steps.add_argument(
        "--request",
        metavar="JSON",
        required=True,
        help="the request; @FILE reads it from a file, - from standard input",
    )
    steps.add_argument("--times", metavar="N", default="1", help="how many requests (default 1)")
    steps.add_argument(
        "--every", metavar="TIME", default="0", help="time between, as 100ms (default 0)"
    )
    _add_format(steps)
    glass.add_arguments(verbs.add_parser("glass", help="stop enforcement, for a while"))


def run(arguments: Namespace) -> int:
    """Run the verb."""
    if arguments.verb == "glass":
        return glass.run(arguments)
    if arguments.verb == "check":
        from sluicegate.apps.limits.check import check  # noqa: PLC0415 - rules come with it

        return check(arguments.files, as_json=arguments.format == "json", strict=arguments.strict)
    from sluicegate.apps.limits.trial import try_out  # noqa: PLC0415 - likewise

    return try_out(
        arguments.file,
        arguments.request,
        times=arguments.times,
        every=arguments.every,
        as_json=arguments.format == "json",
    )


def _add_format(parser: ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(default text)")
