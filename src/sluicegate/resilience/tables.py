"""Tables of TOML as settings: every field is known, and of the kind that its class declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, Final, TypeVar

from sluicegate.contracts.errors import BadValue

T = TypeVar("T")


def build(path: str, settings: type[T], table: object, defaults: Mapping[str, Any]) -> T:
    """Return the settings of this class; any refusal names the field by its whole path."""
    known = {one.name: _kind_of(one) for one in fields(settings)}  # type: ignore[arg-type]
    values = dict(table_of(path, table))
    for name, value in values.items():
        if name not in known:
            raise BadValue(f"{path}.{name}", value, f"give one of {', '.join(known)}")
        if known[name] in _KINDS:
            kinds, meant = _KINDS[known[name]]
            if type(value) not in kinds:
                raise BadValue(f"{path}.{name}", value, f"give {meant}")
        elif known[name] in _LISTS:
            kind, meant = _LISTS[known[name]]
            if type(value) not in {list, tuple} or any(type(one) is not kind for one in value):
                raise BadValue(f"{path}.{name}", value, f"give {meant}")
            values[name] = tuple(value)
        elif known[name] == _NUMBERS:
            numbers = table_of(f"{path}.{name}", value)
            for key, number in numbers.items():
                if type(number) is not int:
                    raise BadValue(f"{path}.{name}.{key}", number, "give a whole number")
    try:
        return settings(**{**defaults, **values})
    except BadValue as error:
        if error.field.startswith(path):
            raise
        # A policy names itself, and cannot know which table of which file it was made from.
        field = error.field.partition(".")[2] or error.field
        raise BadValue(f"{path}.{field}", error.value, error.remedy) from None


def table_of(path: str, value: object) -> Mapping[str, Any]:
    """Return a table as it is; refuse anything else."""
    if not isinstance(value, dict):
        raise BadValue(path, value, f"write it as a table, [{path.removeprefix('resilience.')}]")
    return value


def _kind_of(field: Field[Any]) -> str:
    """Return its type as it is written; a compiled class keeps the type, and not what is in it."""
    if not isinstance(field.type, type):
        return str(field.type)
    if issubclass(field.type, Mapping):
        return _NUMBERS  # the only such tables that a policy has here
    if field.type is not tuple:
        return field.type.__name__
    first = next(iter(field.default), "") if isinstance(field.default, tuple) else ""
    return f"tuple[{type(first).__name__}, ...]"


_NUMBERS: Final = "Mapping[str, int]"
_KINDS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "int": ((int,), "a whole number"),
    "int | None": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a text"),
}
_LISTS: Final[Mapping[str, tuple[type, str]]] = {
    "tuple[str, ...]": (str, "a list of texts"),
    "tuple[int, ...]": (int, "a list of whole numbers"),
}
