"""The command `sluicegate limiter`: its flags, and the step from them to workers that serve.

Light to import: what serves is imported when it is to run.
"""

from __future__ import annotations

import base64
import logging
import os
import sys
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Final

from sluicegate.apps.limiter.fields import FIELDS
from sluicegate.apps.limiter.settings import read_settings
from sluicegate.policies.access import token_digest
from sluicegate.service.settings import add_flags

TOKEN_BYTES: Final = 32

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
rules, callers and certificates again; SIGTERM ends it when what is under way is done.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    add_flags(parser, FIELDS)
    parser.add_argument(
        "--new-token", action="store_true", help="make a token and its digest, print both, and end"
    )


def run(arguments: Namespace) -> int:
    """Serve until told to end."""
    if arguments.new_token:
        return new_token()
    settings, effective = read_settings(arguments)
    if arguments.print_config:
        sys.stdout.write("\n".join([*effective.lines(), ""]))
        return 0
    logging.basicConfig(
        level=settings.log.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # They bring the doors and the stores.
    from sluicegate.apps.limiter.serve import serve  # noqa: PLC0415
    from sluicegate.service.workers import run_workers  # noqa: PLC0415

    return run_workers("limiter", settings.workers, partial(serve, settings))


def new_token() -> int:
    """A token for whoever asks, and its digest for whoever answers."""
    token = base64.urlsafe_b64encode(os.urandom(TOKEN_BYTES)).decode().rstrip("=")
    sys.stdout.write(
        f"the token, for the caller alone:  {token}\n"
        "and for the file of --access:\n\n"
        '[[callers]]\nname = "..."\n'
        f'token_sha256 = "{token_digest(token)}"\n'
        'grants = ["check"]\n'
    )
    return 0
