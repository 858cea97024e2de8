"""Server: the verb that starts the rulebook's server."""

from __future__ import annotations

from argparse import Namespace

from sluicegate.apps.rulebook.app import RulebookApp
from sluicegate.apps.rulebook.location import location_of
from sluicegate.apps.rulebook.settings import FILE_NAME, read_settings
from sluicegate.contracts.errors import BadValue
from sluicegate.service.command import begin
from sluicegate.service.host import serve


def run(arguments: Namespace) -> int:
    """Serve until a signal ends it."""
    if arguments.config:
        remedy = f"a rulebook's settings are in {FILE_NAME}, in its folder"
        raise BadValue("--config", arguments.config, remedy)
    settings = begin(arguments, read_settings(location_of(arguments), arguments))
    return 0 if settings is None else serve("rules", settings, RulebookApp)
