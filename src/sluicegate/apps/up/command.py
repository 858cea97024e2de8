"""The command `sluicegate up`: its flags, and the step from them to a run.

Light to import: what serves and shows is imported when it is to run.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from sluicegate.apps.up.settings import (
    DEMO_RULES,
    LISTEN_DEFAULT,
    LOAD_PER_S_DEFAULT,
    LOAD_PER_S_MAX,
    Settings,
    parse_for,
    parse_listen,
    parse_load,
    parse_rules,
)

EXAMPLES = f"""\
examples:
  sluicegate up                          limits, every service that is installed, a console
                                         in the browser, a demo load and a live view of it
  sluicegate up --alone                  the limits and their load alone
  sluicegate up --no-load                only what you ask it
  sluicegate up --plain --for 10         one line a second, for ten seconds
  sluicegate up --rules 'api = 100/min' --rules 'login = 5/5m by sliding_log'

then, from another terminal:
  curl -i 'http://{LISTEN_DEFAULT}/v1/check?rule=api&key=you'

rules of the demo:
{"".join(f"  {words}" + chr(10) for words in DEMO_RULES)}"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default=LISTEN_DEFAULT,
        help=f"where to listen; port 0 takes a free one (default {LISTEN_DEFAULT})",
    )
    parser.add_argument(
        "--rules",
        metavar="'NAME = RATE'",
        action="append",
        help="a rule in place of the demo's; repeat the flag, or separate several with ';'",
    )
    parser.add_argument(
        "--load",
        metavar="R",
        default=str(LOAD_PER_S_DEFAULT),
        help=f"demo requests a second, 0 to {LOAD_PER_S_MAX} (default {LOAD_PER_S_DEFAULT})",
    )
    parser.add_argument(
        "--alone", action="store_true", help="only the limits: no other service, no console"
    )
    parser.add_argument("--no-load", action="store_true", help="no demo load, as --load 0")
    parser.add_argument(
        "--plain", action="store_true", help="a line a second, as when the output is no terminal"
    )
    parser.add_argument("--for", dest="for_s", metavar="SECONDS", help="end after this time")
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="allow an address that others can reach; there is no authentication and no TLS",
    )


def run(arguments: Namespace) -> int:
    """Serve until a signal ends it."""
    settings = settings_from(arguments)
    from sluicegate.apps.up.run import up  # noqa: PLC0415 - it brings the server

    return up(settings)


def settings_from(arguments: Namespace) -> Settings:
    """The flags as checked values."""
    host, port = parse_listen(arguments.listen, insecure=arguments.insecure)
    return Settings(
        host=host,
        port=port,
        rules=parse_rules(arguments.rules or DEMO_RULES),
        load_per_s=0 if arguments.no_load else parse_load(arguments.load),
        for_s=None if arguments.for_s is None else parse_for(arguments.for_s),
        plain=arguments.plain,
        insecure=arguments.insecure,
        alone=arguments.alone,
    )
