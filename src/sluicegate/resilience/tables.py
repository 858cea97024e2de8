"""Tables of TOML as settings: every field is known, and of the kind that its class declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar

from sluicegate.contracts.errors import BadValue

T = TypeVar("T")


def build(path: str, settings: type[T], table: object, defaults: Mapping[str, Any]) -> T:
    """Return the settings of this class; a refusal names the field by its whole path."""
    # A compiled class keeps its types, an interpreted one their text.
    known = {
        one.name: one.type.__name__ if isinstance(one.type, type) else str(one.type)
        for one in fields(settings)  # type: ignore[arg-type]
    }
    values = table_of(path, table)
    for name, value in values.items():
        if name not in known:
            raise BadValue(f"{path}.{name}", value, f"give one of {', '.join(known)}")
        kinds = _KINDS.get(known[name])
        if kinds is not None and type(value) not in kinds[0]:
            raise BadValue(f"{path}.{name}", value, f"give {kinds[1]}")
    return settings(**{**defaults, **values})


def build_at(path: str, settings: type[T], table: object) -> T:
    """Return the settings of one of many; what they refuse themselves is named by its path too."""
    try:
        return build(path, settings, table, {})
    except BadValue as error:
        if error.field.startswith(path):
            raise
        field = error.field.rpartition(".")[2]
        raise BadValue(f"{path}.{field}", error.value, error.remedy) from None


def table_of(path: str, value: object) -> Mapping[str, Any]:
    """Return a table as it is; refuse anything else."""
    if not isinstance(value, dict):
        raise BadValue(path, value, f"write it as a table, [{path.partition('.')[2] or path}]")
    return value


_KINDS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "int": ((int,), "a whole number"),
    "int | None": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a text"),
    "tuple[str, ...]": ((tuple,), "a list of texts"),
    "tuple[int, ...]": ((tuple,), "a list of whole numbers"),
}
