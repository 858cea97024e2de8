"""Editing: the quotas of a rules file, changed in place, with its comments and all else as it was.

The file must say `callers:` and under it `quotas:`, each quota on a line of its own as
`name: 100/s`. What is changed is read again; if it does not say what it should, nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from headgate.contracts.errors import BadValue
from headgate.limits.rates import parse_rate
from headgate.rules.plain_yaml import read_yaml

_KEY: Final = re.compile(r"""^(\s*)(?:"([^"]*)"|'([^']*)'|([^\s#"':][^:#]*?))\s*:(\s*)(.*)$""")
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")
_COMMENT: Final = re.compile(r"\s+#.*$")


def with_quotas(text: str, quotas: Mapping[str, int], source: str) -> str:
    """The same file with these quotas, in request units a second."""
    if not text.strip():
        text = "version: 1\n"
    lines = text.rstrip("\n").split("\n")
    at, indent = _block(lines)
    left = dict(quotas)
    row = at
    while row < len(lines):
        line = lines[row]
        if line.strip() and not line.lstrip().startswith("#"):
            found = _KEY.match(line)
            if found is None or len(found[1]) < indent:
                break
            name = next(part for part in (found[2], found[3], found[4]) if part is not None)
            if len(found[1]) == indent and name in left:
                comment = _COMMENT.search(found[6])
                tail = "" if comment is None else comment[0]
                lines[row] = f"{found[1]}{_quoted(name)}: {left.pop(name)}/s{tail}"
        row += 1
    while row > at and not lines[row - 1].strip():
        row -= 1
    lines[row:row] = [f"{' ' * indent}{_quoted(name)}: {ru}/s" for name, ru in left.items()]
    changed = "\n".join([*lines, ""])
    said = quotas_in(changed, source)
    for name, ru in quotas.items():
        if said.get(name) != ru:
            remedy = "write its quotas one a line, as `name: 100/s` under callers: and quotas:"
            raise BadValue(source, name, remedy)
    return changed


def quotas_in(text: str, source: str) -> dict[str, int]:
    """The quotas that a file says, in request units a second; those written otherwise are left."""
    said, _ = read_yaml(text, source)
    callers = said.get("callers") if isinstance(said, Mapping) else None
    quotas = callers.get("quotas") if isinstance(callers, Mapping) else None
    found: dict[str, int] = {}
    for name, rate in (quotas or {}).items() if isinstance(quotas, Mapping) else ():
        if isinstance(rate, str):
            limit = parse_rate(rate, field=f"{source}: callers.quotas.{name}")
            found[str(name)] = max(1, round(limit.count * 1_000_000 / limit.period_us))
    return found


def _block(lines: list[str]) -> tuple[int, int]:
    """Where the quotas begin, and how far they are indented; made if there are none."""
    callers = _find(lines, "callers", 0, 0)
    if callers is None:
        lines += ["callers:", "  quotas:"]
        return len(lines), 4
    inner = _indent_below(lines, callers, 0) or 2
    quotas = _find(lines, "quotas", callers + 1, inner)
    if quotas is None:
        lines.insert(callers + 1, f"{' ' * inner}quotas:")
        quotas = callers + 1
    return quotas + 1, _indent_below(lines, quotas, inner) or inner + 2


def _find(lines: list[str], name: str, first: int, indent: int) -> int | None:
    for at in range(first, len(lines)):
        found = _KEY.match(lines[at])
        if found is None or lines[at].lstrip().startswith("#"):
            continue
        if len(found[1]) < indent:
            return None
        if len(found[1]) == indent and name in (found[2], found[3], found[4]):
            return at
    return None


def _indent_below(lines: list[str], at: int, indent: int) -> int:
    for line in lines[at + 1 :]:
        if line.strip() and not line.lstrip().startswith("#"):
            depth = len(line) - len(line.lstrip())
            return depth if depth > indent else 0
    return 0


def _quoted(name: str) -> str:
    return (
        name
        if _PLAIN.fullmatch(name)
        else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )
