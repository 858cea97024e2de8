"""The command `sluicegate limiter`: its flags, and the step from them to workers that serve.

Light to import: what serves is imported when it is to run.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from sluicegate.apps.limiter.settings import LimiterSettings
from sluicegate.service.command import add_service_flags, reader_of, settings_to_serve

EXAMPLES: Final = """\
examples:
  sluicegate limiter --rules rules/                       gRPC, RESP and HTTP on 127.0.0.1:7070
  sluicegate limiter --rules rules/ --store redis://127.0.0.1:6379 --workers 2
  sluicegate limiter --rules envoy.yaml --rls-semantics envoy
  sluicegate limiter --rules rules/ --listen 0.0.0.0:7070 --access callers.toml \\
      --tls-cert chain.pem --tls-key key.pem            for others than this machine
  sluicegate limiter --new-token                          a token, and what to write in callers.toml
  sluicegate limiter --config limiter.toml --print-config

then, from another terminal:
  curl -d '{"user_id": "ann", "resource_path": "/api/v1/playback"}' \\
      -H 'content-type: application/json' http://127.0.0.1:7070/v1/check
  redis-cli -p 7070 CL.THROTTLE ann 15 30 60
  sluicegate why ann

Variables are named SLUICEGATE_LIMITER_ and the flag, as SLUICEGATE_LIMITER_STORE. SIGHUP reads
rules, callers and certificates again; SIGTERM ends it after --leave-s, when work in flight is done.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    add_service_flags(parser, LimiterSettings)


def run(arguments: Namespace) -> int:
    """Serve until a signal ends it."""
    settings = settings_to_serve(LimiterSettings, arguments)
    if settings is None:
        return 0
    # They bring the doors and the stores.
    from sluicegate.apps.limiter.app import LimiterApp  # noqa: PLC0415
    from sluicegate.service.host import serve  # noqa: PLC0415

    read = reader_of(LimiterSettings, arguments)
    return serve("limiter", settings, LimiterApp, settings.workers, read)
