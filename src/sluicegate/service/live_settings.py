"""Live settings: what a reload changes, and what it cannot.

A setting that is declared `live` counts from the reload on; the app takes it over in `App.change`.
Of the others a reload says which differ from what runs, since only a restart brings them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from sluicegate.contracts.errors import SluicegateError
from sluicegate.service.common_settings import ServiceSettings
from sluicegate.service.settings import fields_of

S = TypeVar("S", bound=ServiceSettings)


class SettingsChange(NamedTuple):
    """Which settings differ, by whether they are live."""

    live: tuple[str, ...]
    restart: tuple[str, ...]


def changes(before: S, after: S) -> SettingsChange:
    """Return what differs."""
    live: list[str] = []
    restart: list[str] = []
    for field in fields_of(type(before)):
        if getattr(before, field.name) != getattr(after, field.name):
            (live if field.live else restart).append(field.name)
    return SettingsChange(tuple(live), tuple(restart))


def reread(before: S, read: Callable[[], S], log: logging.Logger) -> S:
    """Return the settings from now on; those that cannot be used change nothing."""
    try:
        after = read()
        live, restart = changes(before, after)
        settings = replace(before, **{name: getattr(after, name) for name in live})
        settings.check()
    except SluicegateError as error:
        log.warning("the settings stay as they are: %s", error)
        return before
    if restart:
        log.warning("needs a restart: %s", ", ".join(restart))
    return settings if live else before
