"""Other defaults for the fields of a settings class, for the time of one run.

A sweep asks "what if the default were another?" Candidates run as they are, and what they set
themselves stays set. What changes are the keyword defaults of the class's `__init__`, so each value
is checked by `__post_init__` like any other.

Defaults change in the process of the run, and are restored when the run has ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, Final, NamedTuple

import sluicegate.policies
from sluicegate.contracts.errors import BadValue

_ENDING: Final = "Settings"


class SettingChange(NamedTuple):
    """The default of one field; named, so that it can travel to another process."""

    module: str
    settings: str
    field: str
    value: object

    def text(self) -> str:
        """As people read it: `standing_us=none`."""
        return f"{self.field}={value_text(self.value)}"


@contextmanager
def override_defaults(changes: Sequence[SettingChange]) -> Iterator[None]:
    """Make these the defaults inside."""
    before: list[tuple[dict[str, Any], str, object]] = []
    try:
        for change in changes:
            defaults = _defaults(getattr(import_module(change.module), change.settings))
            before.append((defaults, change.field, defaults[change.field]))
            defaults[change.field] = change.value
        yield
    finally:
        for defaults, field, value in reversed(before):
            defaults[field] = value


def find_field(name: str) -> tuple[Any, str]:
    """The settings class and the field of `standing_us`, or of `queue.standing_us`."""
    policy, _, field = name.rpartition(".")
    found = [
        (of, settings)
        for of, settings in _all_settings()
        if field in settings.__dataclass_fields__ and policy in {"", of, settings.__name__}
    ]
    if len(found) == 1:
        return found[0][1], field
    if not found:
        raise BadValue("--set", name, "name a field of a policy's settings, as queue.standing_us")
    which = ", ".join(f"{of}.{field}" for of, _ in found)
    raise BadValue("--set", name, f"say which policy's: {which}")


def parse_change(name: str, text: str) -> SettingChange:
    """Parse a change as it is written on a command line; its type is that of the default."""
    settings, field = find_field(name)
    default = _defaults(settings).get(field)
    return SettingChange(settings.__module__, settings.__name__, field, _value(name, text, default))


def value_text(value: object) -> str:
    """A value as it is written on the command line."""
    return "none" if value is None else str(value)


def _value(name: str, text: str, default: object) -> object:
    if text.lower() == "none":
        return None
    if isinstance(default, bool):
        if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        raise BadValue(f"--set {name}", text, "give true or false")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    if isinstance(default, int | float):
        raise BadValue(f"--set {name}", text, "give numbers, with commas between")
    return text


def _defaults(settings: Any) -> dict[str, Any]:
    found = getattr(settings.__init__, "__kwdefaults__", None)
    if not isinstance(found, dict):
        remedy = (
            "tune where Sluicegate is not compiled: SLUICEGATE_COMPILE=0 pip install sluicegate"
        )
        raise BadValue("settings", settings.__name__, remedy)
    return found


def _all_settings() -> Iterator[tuple[str, Any]]:
    """Every settings class of the policies, and what it is the settings of: `queue`, `hot_key`."""
    for info in walk_packages(sluicegate.policies.__path__, "sluicegate.policies."):
        module = import_module(info.name)
        for name, value in vars(module).items():
            own = isinstance(value, type) and value.__module__ == module.__name__
            if own and name.endswith(_ENDING) and is_dataclass(value):
                words = re.findall(r"[A-Z][a-z0-9]*", name.removesuffix(_ENDING))
                yield "_".join(words).lower(), value
