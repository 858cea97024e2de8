"""Settings: each declared once, as an annotated line of a frozen dataclass.

    @dataclass(frozen=True, kw_only=True)
    class EchoSettings(ServiceSettings):
        VARIABLES = "SLUICEGATE_ECHO_"
        copies: Annotated[int, Setting("how often each word is said", whole(1, 9))] = 1

From such a line come the flag (`--copies`), the variable (`SLUICEGATE_ECHO_COPIES`), the name in
the settings file (`copies`), its part of `--help`, and what `--print-config` shows, with where each
value comes from: the flag, else the variable, else the file, else the default. A wrong text is an
error that names the place it was written in. An expert setting is listed last in `--help`, and
under `[expert]` in `--print-config`; a settings file may have it there or at the top. Nothing here
knows what any setting means.
"""

from __future__ import annotations

import inspect
import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar, final, get_type_hints

from sluicegate.contracts.errors import BadValue
from sluicegate.service.toml_file import read_toml

FILE_BYTES_MAX: Final = 1_000_000
EXPERT: Final = "expert"  # the table of a settings file
EXPERT_TITLE: Final = "expert settings"
_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SECRET_SHOWN: Final = "(set, not shown)"
_FILE: Final = "file "  # before the path of the settings file that is a value's source
# Kubernetes describes each service of a namespace to its pods by such variables. A service that is
# called `sluicegate-limiter`, or longer, has them begin as the limiter's own.
_SERVICE_VARIABLE: Final = re.compile(
    r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_PORT_VARIABLE: Final = re.compile(r"(.+_)?PORT")
_PORT_URL: Final = re.compile(r"(tcp|udp|sctp)://")


class SettingType(NamedTuple):
    """How a text becomes a value, what stands for it in `--help`, and how a value is written.

    `parse` is given the text and the place it was written in, which its errors name.
    """

    parse: Callable[[str, str], Any]
    metavar: str = "VALUE"
    write: Callable[[Any], str] = str

    def __call__(self, text: str, where: str) -> Any:
        """Return the value of a text."""
        return self.parse(text, where)


class Setting(NamedTuple):
    """What an annotation says of a field; without a type it is a text or a switch.

    One that is `live` can change while the service runs (`live_settings.py`). An `expert` setting
    is one that an ordinary installation never sets.
    """

    help: str
    type: SettingType | None = None
    metavar: str = ""
    secret: bool = False
    live: bool = False
    expert: bool = False


class SettingField(NamedTuple):
    """A setting as flags, variables and files have it; `several` may be given more than once."""

    name: str
    type: SettingType
    defaults: tuple[str, ...]
    help: str
    metavar: str
    several: bool
    secret: bool
    live: bool
    expert: bool
    group: str  # the first sentence of the class that declares it, or that of expert settings


@dataclass(frozen=True, kw_only=True)
class SettingsBase:
    """What every dataclass of settings is made of; `check` compares settings with one another."""

    VARIABLES: ClassVar[str] = ""

    def check(self) -> None:
        """Raise for settings that do not go together."""


S = TypeVar("S", bound=SettingsBase)


@final
@dataclass(frozen=True, slots=True)
class Effective(Generic[S]):
    """The settings in effect, and of each the texts it was read from and where they stood."""

    settings: S
    texts: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, str]

    def lines(self) -> list[str]:
        """A settings file that says the same, with the source of each value behind it."""
        fields = fields_of(type(self.settings))
        rows = [(one, f"{one.name} = {self._shown(one)}") for one in fields]
        width = min(max(len(line) for _, line in rows), 60)
        found: dict[bool, list[str]] = {False: [], True: []}
        for field, line in rows:
            found[field.expert].append(f"{line:<{width}}  # {self.sources[field.name]}")
        heading = [f"[{EXPERT}]"] if found[True] else []
        return found[False] + heading + found[True]

    def secret_files(self) -> list[str]:
        """The settings files that a secret was read from."""
        sources = [self.sources[one.name] for one in fields_of(type(self.settings)) if one.secret]
        return sorted({one.removeprefix(_FILE) for one in sources if one.startswith(_FILE)})

    def _shown(self, field: SettingField) -> str:
        texts = self.texts[field.name]
        if field.secret:
            texts = tuple(text if text in field.defaults else _hidden(text) for text in texts)
        if field.several:
            return "[" + ", ".join(map(_quoted, texts)) + "]"
        return _quoted(texts[0])


def fields_of(settings: type[SettingsBase]) -> tuple[SettingField, ...]:
    """The fields of a class: its own first, then those of the classes it is made of, in order."""
    hints = get_type_hints(settings, include_extras=True)
    declared = {field.name: field for field in fields(settings)}
    found: dict[str, SettingField] = {}
    for owner in settings.__mro__:
        group = (owner.__doc__ or "").partition("\n")[0].rstrip(".")
        for name in inspect.get_annotations(owner):
            metadata = getattr(hints.get(name), "__metadata__", ())
            setting = next((one for one in metadata if isinstance(one, Setting)), None)
            if setting is not None and name in declared and name not in found:
                found[name] = _field(name, hints[name], setting, declared[name].default, group)
    return tuple(found.values())


def _field(name: str, hint: Any, setting: Setting, default: Any, group: str) -> SettingField:
    if default is MISSING:
        raise TypeError(f"the setting {name} needs a default")
    several = hint.__origin__ == tuple[str, ...]
    type_ = setting.type or (SWITCH if hint.__origin__ is bool else TEXT)
    defaults = tuple(map(type_.write, default)) if several else (type_.write(default),)
    metavar = setting.metavar or type_.metavar
    return SettingField(
        name,
        type_,
        defaults,
        setting.help,
        metavar,
        several,
        setting.secret,
        setting.live,
        setting.expert,
        EXPERT_TITLE if setting.expert else group,
    )


def add_flags(parser: ArgumentParser, settings: type[SettingsBase]) -> None:
    """A flag for each setting, and `--config` and `--print-config`."""
    groups: dict[str, Any] = {}
    for field in sorted(fields_of(settings), key=lambda one: one.expert):
        group = groups.get(field.group)
        if group is None:
            group = groups[field.group] = parser.add_argument_group(field.group)
        value = " ".join(filter(None, field.defaults))
        more = "; may be given more than once" if field.several else ""
        more += "; SIGHUP reads it again" if field.live else ""
        # A switch may be given alone: `--insecure` is `--insecure on`.
        alone: dict[str, Any] = {"nargs": "?", "const": "on"} if field.type is SWITCH else {}
        group.add_argument(
            _flag(field),
            dest=field.name,
            metavar=field.metavar,
            action="append" if field.several else "store",
            default=None,
            **alone,
            help=f"{field.help}{more}{f' (default {value})' if value else ''}".replace("%", "%%"),
        )
    parser.add_argument(
        "--config", metavar="FILE", help="a TOML file of settings, named as the flags are with _"
    )
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="show every setting in effect and where it comes from, and exit",
    )


def read_settings(
    settings: type[S],
    arguments: Namespace,
    environment: Mapping[str, str] | None = None,
    **fixed: Any,
) -> Effective[S]:
    """The settings in effect, checked alone and together; `fixed` are fields that are not settings.

    Of each the flag counts, else the variable, else the file, else the default.
    """
    effective = gather(settings, arguments, environment, **fixed)
    effective.settings.check()
    return effective


def settings_from(settings: type[S], *flags: str) -> S:
    """The settings that these flags alone say, checked: for programs and tests."""
    parser = ArgumentParser()
    add_flags(parser, settings)
    return read_settings(settings, parser.parse_args(flags), {}).settings


def gather(
    settings: type[S],
    arguments: Namespace,
    environment: Mapping[str, str] | None = None,
    **fixed: Any,
) -> Effective[S]:
    """The settings in effect, each checked alone."""
    environment = os.environ if environment is None else environment
    prefix, declared_fields = settings.VARIABLES, fields_of(settings)
    path = arguments.config or environment.get(f"{prefix}CONFIG", "")
    file = _read_file(path, declared_fields) if path else {}
    values: dict[str, Any] = dict(fixed)
    texts: dict[str, tuple[str, ...]] = {}
    sources: dict[str, str] = {}
    for field in declared_fields:
        variable = prefix + field.name.upper()
        flag = getattr(arguments, field.name)
        if flag is not None:
            raw = tuple(flag) if field.several else (flag,)
            where, source = _flag(field), "flag"
        elif variable in environment:
            text = environment[variable]
            raw = tuple(text.split()) if field.several else (text,)
            where, source = variable, f"variable {variable}"
        elif field.name in file:
            raw, where, source = file[field.name], f"{path}: {field.name}", f"{_FILE}{path}"
        else:
            raw, where, source = field.defaults, _flag(field), "default"
        read = tuple(field.type.parse(text, where) for text in raw)
        values[field.name] = read if field.several else read[0]
        texts[field.name] = raw
        sources[field.name] = source
    _refuse_unknown(declared_fields, environment, prefix)
    return Effective(settings(**values), texts, sources)


# Types of settings.


def whole(least: int, most: int, metavar: str = "N") -> SettingType:
    """A whole number within bounds; `1_000` and `1,000` are one thousand."""

    def parse(text: str, where: str) -> int:
        try:
            value = int(text.replace(",", "").replace("_", ""))
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise BadValue(where, text, f"give a whole number from {least:,} to {most:,}")
        return value

    return SettingType(parse, metavar)


def seconds(least: float, most: float) -> SettingType:
    """Seconds within bounds; `12ms`, `1.5s`, `2m`, `1h` and `7d` name their unit."""

    def parse(text: str, where: str) -> float:
        value = _in_unit(text, 1.0)
        if not least <= value <= most:
            raise BadValue(where, text, f"give seconds from {least:g} to {most:g}")
        return value

    return SettingType(parse, "SECONDS", "{:g}".format)


def milliseconds(least: int, most: int) -> SettingType:
    """Whole milliseconds within bounds; `1.5s` names its unit, as for `seconds`."""

    def parse(text: str, where: str) -> int:
        value = _in_unit(text.replace(",", "").replace("_", ""), 1e-3) * 1e3
        if not least <= value <= most or abs(value - round(value)) > 1e-6:
            raise BadValue(where, text, f"give whole milliseconds from {least:,} to {most:,}")
        return round(value)

    return SettingType(parse, "MS")


def _in_unit(text: str, unit_s: float) -> float:
    """Return the seconds that a text means, in `unit_s` unless it names a unit; else nan."""
    number = text.strip().rstrip("".join(_UNITS_S))
    unit = text.strip()[len(number) :]
    try:
        return float(number) * (_UNITS_S[unit] if unit else unit_s)
    except (KeyError, ValueError):
        return float("nan")


def one_of(*words: str) -> SettingType:
    """One of some words."""

    def parse(text: str, where: str) -> str:
        if text not in words:
            raise BadValue(where, text, f"give one of {', '.join(words)}")
        return text

    return SettingType(parse, "|".join(words))


def _parse_switch(text: str, where: str) -> bool:
    word = text.strip().lower()
    if word in {"on", "yes", "true", "1"}:
        return True
    if word in {"off", "no", "false", "0"}:
        return False
    raise BadValue(where, text, "give on or off")


def _parse_share(text: str, where: str) -> float:
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise BadValue(where, text, "give a share from 0 to 1, or a percentage as 5%")
    return value


TEXT: Final = SettingType(lambda text, _: text)
SWITCH: Final = SettingType(_parse_switch, "on|off", lambda value: "on" if value else "off")
SHARE: Final = SettingType(_parse_share, "SHARE", "{:g}".format)


def _flag(field: SettingField) -> str:
    return "--" + field.name.replace("_", "-")


def _read_file(path: str, declared_fields: Sequence[SettingField]) -> dict[str, tuple[str, ...]]:
    table = read_toml("--config", path, FILE_BYTES_MAX)
    by_name = {field.name: field for field in declared_fields}
    expert = table.pop(EXPERT, {})
    if not isinstance(expert, dict):
        raise BadValue(f"{path}: {EXPERT}", expert, f"make it a table, [{EXPERT}]")
    found: dict[str, tuple[str, ...]] = {}
    for name, value in table.items():
        if name not in by_name:
            raise BadValue(f"{path}: {name}", value, f"there are {', '.join(by_name)}")
        found[name] = _texts(value, by_name[name], f"{path}: {name}")
    for name, value in expert.items():
        where = f"{path}: {EXPERT}.{name}"
        if name not in by_name or not by_name[name].expert:
            names = ", ".join(one.name for one in declared_fields if one.expert) or "none"
            raise BadValue(where, value, f"move it above [{EXPERT}]; expert settings: {names}")
        if name in found:
            raise BadValue(where, value, f"give it once, above or below [{EXPERT}]")
        found[name] = _texts(value, by_name[name], where)
    return found


def _texts(value: object, field: SettingField, where: str) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    if len(values) != 1 and not field.several:
        raise BadValue(where, value, "give one value")
    texts: list[str] = []
    for one in values:
        if isinstance(one, bool):
            texts.append("on" if one else "off")
        elif isinstance(one, str | int | float):
            texts.append(str(one))
        else:
            raise BadValue(where, one, "give a text or a number")
    return tuple(texts)


def _refuse_unknown(
    declared_fields: Sequence[SettingField], environment: Mapping[str, str], prefix: str
) -> None:
    """Raise for a misspelt variable, which would be a setting that silently does nothing."""
    variables = {prefix + field.name.upper() for field in declared_fields} | {f"{prefix}CONFIG"}
    for name in environment:
        own = name.startswith(prefix) and name not in variables
        if own and not _of_kubernetes(name.removeprefix(prefix), environment[name]):
            names = ", ".join(sorted(variables))
            raise BadValue(name, environment[name], f"there is no such variable; there are {names}")


def _of_kubernetes(rest: str, value: str) -> bool:
    """Whether it is a variable of a Kubernetes service whose name begins as our variables do."""
    return _SERVICE_VARIABLE.fullmatch(rest) is not None or (
        _PORT_VARIABLE.fullmatch(rest) is not None and _PORT_URL.match(value) is not None
    )


def _hidden(text: str) -> str:
    """A URL without its password; of any other secret, only that there is one."""
    scheme, marks, rest = text.partition("://")
    if not marks:
        return _SECRET_SHOWN
    who, at, where = rest.rpartition("@")
    return f"{scheme}://{who.partition(':')[0]}:(not shown)@{where}" if at else text


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
