"""The command `sluicegate pubsub`: its flags, and the step from them to a service.

Light to import: what serves is imported when it is to run.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from sluicegate.apps.pubsub.settings import PubSubSettings
from sluicegate.command_line.verbs import VerbEntry, add_verbs, run_verb
from sluicegate.service.command import add_service_flags, reader_of, settings_to_serve

EXAMPLES: Final = """\
examples:
  sluicegate pubsub                                       HTTP on 127.0.0.1:7090
  sluicegate pubsub --history /var/lib/pubsub --history-s 3600 --history-bytes 1_000_000_000
  sluicegate pubsub --account-rate 5000 --channel-rate 100
  sluicegate pubsub --listen 0.0.0.0:7090 --access accounts.toml \\
      --tls-cert chain.pem --tls-key key.pem              for others than this machine
  sluicegate pubsub --node n1 --members n1=10.0.0.1:7090,n2=10.0.0.2:7090 --listen 10.0.0.1:7090 \\
      --access accounts.toml --tls-cert n1.pem --tls-key n1.key      one limit over several nodes
  sluicegate pubsub cluster -n 5                          a cluster to look at, on this machine

then, from two other terminals:
  curl -N http://127.0.0.1:7090/v1/channels/news/events
  curl -d '{"data": "hello"}' -H 'content-type: application/json' \\
      http://127.0.0.1:7090/v1/channels/news/messages
or open http://127.0.0.1:7090/ in a browser.

An account is a caller of the access file, with the grants publish and subscribe. Variables are
named SLUICEGATE_PUBSUB_ and the flag, as SLUICEGATE_PUBSUB_HISTORY. SIGHUP reads accounts and
certificates again; SIGTERM ends it after --leave-s.
"""


_PACKAGE: Final = "sluicegate.apps.pubsub"
VERBS: Final = (
    VerbEntry("top", "accounts over the nodes of a cluster, live", "top"),
    VerbEntry("cluster", "a cluster on this machine, with an account far over its limit", "demo"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """The flags of the server, and the verbs."""
    add_service_flags(parser, PubSubSettings)
    add_verbs(parser, _PACKAGE, VERBS)


def run(arguments: Namespace) -> int:
    """Serve until a signal ends it, or run the verb."""
    code = run_verb(arguments, _PACKAGE, VERBS)
    if code is not None:
        return code
    settings = settings_to_serve(PubSubSettings, arguments)
    if settings is None:
        return 0
    # They bring the doors and the stores.
    from sluicegate.apps.pubsub.app import PubSubApp  # noqa: PLC0415
    from sluicegate.service.host import serve  # noqa: PLC0415

    return serve("pubsub", settings, PubSubApp, read=reader_of(PubSubSettings, arguments))
