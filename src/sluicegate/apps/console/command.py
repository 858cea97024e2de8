"""The command `sluicegate console`: its flags, and the step from them to a server.

Light to import: what serves is imported when it is to run.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from sluicegate.apps.console.settings import ConsoleSettings
from sluicegate.service.command import add_service_flags, settings_to_serve

EXAMPLES: Final = """\
examples:
  sluicegate console                                      a limiter and a dispatcher of this machine
  sluicegate console --services http://kv-1:7080 --services http://kv-2:7080
  sluicegate console --services https://kv.internal:7080 --ca ca.pem   its token in
      SLUICEGATE_CONSOLE_SERVICES_TOKEN
  sluicegate console --services dns+https://limiter.internal:7070 ...   one at each address it has
  sluicegate console --rulebook http://127.0.0.1:7075      to change rules, too
  sluicegate console --listen 0.0.0.0:7050 --access callers.toml \\
      --tls-cert chain.pem --tls-key key.pem              for others than this machine

then open http://127.0.0.1:7050 in a browser. Variables are named SLUICEGATE_CONSOLE_ and the flag,
as SLUICEGATE_CONSOLE_SERVICES; SIGTERM ends it after --leave-s.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    add_service_flags(parser, ConsoleSettings)


def run(arguments: Namespace) -> int:
    """Serve until a signal ends it."""
    settings = settings_to_serve(ConsoleSettings, arguments)
    if settings is None:
        return 0
    # They bring the doors.
    from sluicegate.apps.console.app import ConsoleApp  # noqa: PLC0415
    from sluicegate.service.host import serve  # noqa: PLC0415

    return serve("console", settings, ConsoleApp)
