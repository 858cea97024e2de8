"""Location: the rulebook that a command means, in a folder here or behind a server."""

from __future__ import annotations

import getpass
import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from sluicegate.apps.rulebook.messages import TOKEN_VARIABLE, explain_unreachable
from sluicegate.apps.rulebook.settings import read_settings
from sluicegate.apps.rulebook.verbs import RULEBOOK_VARIABLE
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.rule_admin import RuleAdmin

_SERVERS: Final = ("http://", "https://", "unix:")
_LOCAL_GRANTS: Final = frozenset({Grant.READ_RULES, Grant.PROPOSE, Grant.APPROVE})


class RulebookConnection(NamedTuple):
    """A rulebook, and the caller. A server knows the caller by itself."""

    admin: RuleAdmin
    by: Identity


@contextmanager
def the_rulebook(arguments: Namespace) -> Iterator[RulebookConnection]:
    """The rulebook that --rulebook or the variable says, for as long as the command takes."""
    location = location_of(arguments)
    if location.startswith(_SERVERS):
        # Either brings packages of its own.
        from sluicegate.rules.remote.admin import RemoteRuleAdmin  # noqa: PLC0415

        admin = RemoteRuleAdmin(
            location,
            token=os.environ.get(TOKEN_VARIABLE, ""),
            ca=arguments.ca,
            cert=arguments.cert,
            key=arguments.cert_key,
        )
        try:
            yield RulebookConnection(admin, Identity("", _LOCAL_GRANTS))
        except Unavailable as error:
            secure, certified = location.startswith("https://"), bool(arguments.cert)
            raise explain_unreachable(error, secure=secure, certified=certified) from None
        return
    from sluicegate.apps.rulebook.assembly import Assembly  # noqa: PLC0415

    assembly = Assembly(read_settings(location).settings)
    try:
        # What was pushed, and what an earlier command could not finish.
        assembly.publishing.upkeep.look()
        yield RulebookConnection(
            assembly.admin, Identity(arguments.who or getpass.getuser(), _LOCAL_GRANTS)
        )
    finally:
        assembly.close()


def location_of(arguments: Namespace) -> str:
    """What --rulebook says, else the variable, else this folder."""
    return arguments.rulebook or os.environ.get(RULEBOOK_VARIABLE, "") or "."
