"""The command `sluicegate kv`: its flags, its verbs, and the step from them to workers that serve.

Light to import: what serves is imported when it is to run.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from sluicegate.apps.kv.settings import KvSettings
from sluicegate.command_line.verbs import VerbEntry, add_verbs, run_verb
from sluicegate.service.command import add_service_flags, reader_of, settings_to_serve

EXAMPLES: Final = """\
examples:
  sluicegate kv                                           127.0.0.1:7080, values in ./sluicegate-kv
  sluicegate kv --engine lmdb:/var/lib/sluicegate --usage /var/lib/sluicegate-usage
  sluicegate kv --engine cassandra://10.0.0.1,10.0.0.2/mussel --store redis://10.0.0.9 --workers 4
  sluicegate kv --access callers.toml --rules rules/ --listen 0.0.0.0:7080 \\
      --tls-cert chain.pem --tls-key key.pem            for others than this machine
  sluicegate kv --policy generation-one                   a counter a minute for each caller
  sluicegate kv --config kv.toml --print-config

then, from another terminal:
  redis-cli -p 7080 SET listings:42 '{"name": "Villa"}'
  redis-cli -p 7080 SG.RANGE reviews:42 LIMIT 10
  curl http://127.0.0.1:7080/v1/tables/listings/rows/42
  sluicegate kv top                                       callers, refusals, stress, hot keys, live
  sluicegate kv load listings rows.csv                    millions of rows, visible at once

Variables are named SLUICEGATE_KV_ and the flag, as SLUICEGATE_KV_ENGINE. SIGHUP reads rules,
callers and certificates again; SIGTERM ends it after --leave-s, when work in flight is done.
"""


_PACKAGE: Final = "sluicegate.apps.kv"
VERBS: Final = (
    VerbEntry("top", "callers, refusals, stress and hot keys of dispatchers, live", "top.command"),
    VerbEntry("hot", "the hot keys of dispatchers, live", "hot"),
    VerbEntry("costs", "what dispatchers have learned of costs", "costs"),
    VerbEntry("load", "upload millions of rows beside live traffic", "load.command"),
    VerbEntry("calibrate", "measure an engine, and print what operations cost", "calibrate"),
    VerbEntry("scrub", "verify all rows of an embedded engine", "scrub"),
    VerbEntry("backup", "copy the embedded engine of a running dispatcher", "backup"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """The flags of the server, and the verbs."""
    add_service_flags(parser, KvSettings)
    add_verbs(parser, _PACKAGE, VERBS)


def run(arguments: Namespace) -> int:
    """Serve until stopped, or run the verb."""
    code = run_verb(arguments, _PACKAGE, VERBS)
    if code is not None:
        return code
    settings = settings_to_serve(KvSettings, arguments)
    if settings is None:
        return 0
    # They bring the doors and the engines.
    from sluicegate.apps.kv.app import KvApp  # noqa: PLC0415
    from sluicegate.service.host import serve  # noqa: PLC0415

    read = reader_of(KvSettings, arguments)
    return serve("kv", settings, KvApp, settings.workers, read)
