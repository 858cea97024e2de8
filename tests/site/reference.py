"""Reference: pages that are made of the code itself, so that they cannot say anything else.

Public names from their docstrings, settings from the classes that declare them, reasons from their
table, HTTP from the document of each running service, gRPC from the `.proto` files.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from html import escape
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple, cast

from sluicegate.apps.console.settings import ConsoleSettings
from sluicegate.apps.images.settings import ImagesSettings
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.limiter.settings import LimiterSettings
from sluicegate.apps.pubsub.settings import PubSubSettings
from sluicegate.apps.rulebook.settings import RulebookSettings
from sluicegate.contracts.reasons import REASONS
from sluicegate.contracts.rule_admin import NOBODY, RuleAdmin
from sluicegate.doors.http.message import HttpRequest
from sluicegate.doors.http.rules.handler import RulesHttp
from sluicegate.doors.http.rules.operations import DOCUMENT
from sluicegate.policies.access import OpenAccess
from sluicegate.service.settings import SettingsBase, fields_of
from sluicegate.system import SystemClock
from tests.apps.console.process import ConsoleProcess
from tests.apps.images.process import ImagesProcess
from tests.apps.kv.process import KvProcess
from tests.apps.limiter.process import LimiterProcess
from tests.apps.pubsub.process import PubSubProcess
from tests.apps.server_process import ServerProcess
from tests.doors.http.rules.serving import Well
from tests.site.page import Part, slug_of

# What people import, in the order of the ways in.
MODULES: Final = (
    "sluicegate",
    *(f"sluicegate.doors.{name}" for name in (
        "asgi", "wsgi", "fastapi", "django", "flask", "aiohttp", "interceptors", "celery",
    )),
    "sluicegate.rules.web.guard",
    "sluicegate.client",
    "sluicegate.client.pubsub",
    "sluicegate.client.sync_pubsub",
    *(f"sluicegate.resilience.{name}" for name in (
        "app_kinds", "kit", "context", "settings", "server.asgi", "server.wsgi", "server.grpc",
        "client.client", "client.calls", "errors.registry",
        "client.settings", "client.resilient", "client.httpx", "client.requests", "client.aiohttp",
        "client.grpc", "hosts.group",
        "hosts.sources", "dependencies.dependency", "dependencies.soft", "dependencies.gather",
        "objectives",
    )),
    "sluicegate.apps.resilience.state_server",
    "sluicegate.apps.images.signatures",
    "sluicegate.cluster.account_limiter",
    "sluicegate.testing",
)  # fmt: skip
SETTINGS: Final[dict[str, type[SettingsBase]]] = {
    "limiter": LimiterSettings, "kv": KvSettings, "pubsub": PubSubSettings,
    "images serve": ImagesSettings, "console": ConsoleSettings, "rules serve": RulebookSettings,
}  # fmt: skip
PROTOS: Final = Path("src/sluicegate/protos/sluicegate/v1")


class ReferencePage(NamedTuple):
    """A page: where it is, its title, its body, and its parts for the search."""

    url: str
    title: str
    html: str
    parts: list[Part]


class _Body:
    """Headings, rows and words of a page, and its parts with them."""

    def __init__(self, title: str, opening: str) -> None:
        self.title = title
        self.html = [f"<h1>{escape(title)}</h1><p>{escape(opening)}</p>"]
        self.parts: list[Part] = [Part("", title, [opening])]

    def heading(self, words: str, anchor: str = "") -> None:
        anchor = anchor or slug_of(words)
        self.html.append(f'<h2 id="{anchor}">{escape(words)}</h2>')
        self.parts.append(Part(anchor, words))

    def name(self, how: str, words: str, anchor: str) -> None:
        self.html.append(
            f'<dl><dt id="{anchor}"><code>{escape(how)}</code></dt><dd>{_marked(words)}</dd></dl>'
        )
        self.parts.append(Part(anchor, anchor, [words]))

    def words(self, words: str) -> None:
        self.html.append(f"<p>{_marked(words)}</p>")
        self.parts[-1].text.append(words)

    def code(self, text: str) -> None:
        self.html.append(f"<pre><code>{escape(text)}</code></pre>")
        self.parts[-1].text.append(text)

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        head = "".join(f"<th>{escape(words)}</th>" for words in heads)
        body = []
        for row in rows:
            body.append("<tr>" + "".join(f"<td>{_marked(cell)}</td>" for cell in row) + "</tr>")
            self.parts[-1].text.append(" ".join(row))
        self.html.append(f'<div class="wide"><table><tr>{head}</tr>{"".join(body)}</table></div>')

    def page(self, name: str) -> ReferencePage:
        return ReferencePage(f"reference/{name}.html", self.title, "".join(self.html), self.parts)


def _marked(text: str) -> str:
    """Words as HTML; those between ` are code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def pages(root: Path) -> list[ReferencePage]:
    """All pages of the reference."""
    return [python_page(), settings_page(), reasons_page(), *http_pages(), grpc_page(root)]


def python_page() -> ReferencePage:
    """The names that programs import."""
    body = _Body("Public names of the package", "What programs import, module by module.")
    for name in MODULES:
        module = importlib.import_module(name)
        body.heading(name)
        if name != "sluicegate":
            body.words((inspect.getdoc(module) or "").partition("\n\n")[0])
        short = name == "sluicegate"
        for one, thing in _names(module):
            anchor = one if short else f"{name}.{one}"
            body.name(_how(one, thing), inspect.getdoc(thing) or "", anchor)
            if inspect.isclass(thing):
                for method, member in inspect.getmembers(thing, inspect.isroutine):
                    words = inspect.getdoc(member)
                    if method[0] != "_" and words and getattr(member, "__objclass__", 0) == 0:
                        body.name(_how(f"{one}.{method}", member), words, f"{anchor}.{method}")
    return body.page("python")


def _names(module: ModuleType) -> list[tuple[str, Any]]:
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return [(name, getattr(module, name)) for name in listed]
    return [
        (name, thing)
        for name, thing in vars(module).items()
        if name[0] != "_"
        and issubclass(type(thing), (type, FunctionType))
        and thing.__module__ == module.__name__
    ]


def _how(name: str, thing: Any) -> str:
    """How it is called, as a person would write it."""
    if inspect.isclass(thing) and issubclass(thing, Enum):
        return name
    try:
        written = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return name
    written = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", written)
    written = re.sub(r"(: |-> )'([^']*)'", r"\1\2", written)
    return name + re.sub(r"^\((self|cls)(, )?", "(", written)


def settings_page() -> ReferencePage:
    """The settings of every service."""
    body = _Body(
        "Settings of the services",
        "Each is a flag, a variable, and a name in the file of --config. The flag counts, else the "
        "variable, else the file, else the default.",
    )
    for app, settings in SETTINGS.items():
        body.heading(f"sluicegate {app}")
        first = fields_of(settings)[0].name
        body.words(
            f"The variable of `--{first}` is `{settings.VARIABLES}{first.upper()}`, and so of each."
        )
        body.table(
            ("flag", "default", "what it does", "SIGHUP reads it"),
            (
                (
                    f"`--{field.name.replace('_', '-')} {field.metavar}`",
                    " ".join(f"`{value}`" for value in field.defaults if value),
                    field.help + ("; may be given more than once" if field.several else ""),
                    "yes" if field.live else "",
                )
                for field in fields_of(settings)
            ),
        )
    return body.page("settings")


def reasons_page() -> ReferencePage:
    """Why work is refused."""
    body = _Body(
        "Reasons for refusing",
        "Every refusal has one of these, in every language: a client that reads what may be tried "
        "again needs to know nothing else.",
    )
    body.table(
        ("reason", "what it says", "HTTP", "gRPC", "RESP", "try again"),
        (
            (
                f"`{reason.name}`", reason.sentence, str(reason.http_status),
                f"`{reason.grpc_code.name}`", f"`{reason.resp_error}`", reason.retry.value,
            )
            for reason in REASONS.values()
        ),
    )  # fmt: skip
    return body.page("reasons")


def http_pages() -> list[ReferencePage]:
    """HTTP as each service documents it when it is asked."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        at = Path(folder)
        starts: dict[str, Callable[[], ServerProcess]] = {
            "limiter": lambda: LimiterProcess(at),
            "kv": lambda: KvProcess(at, "--engine", "memory:"),
            "pubsub": lambda: PubSubProcess(at),
            "images": lambda: ImagesProcess(at),
            "console": lambda: ConsoleProcess(at, "--services", "http://127.0.0.1:1"),
        }
        documents = pool.map(_document, starts.values())
        found = [
            _http_page(f"sluicegate {name}", "/openapi.json", one)
            for name, one in zip(starts, documents, strict=True)
        ]
    rulebook = RulesHttp(RuleAdmin(), Well(), OpenAccess(), SystemClock())
    try:
        # Whoever asks, and how, makes no difference to it.
        document = json.loads(rulebook.openapi(cast("HttpRequest", None), NOBODY, b"").body)
    finally:
        rulebook.close()
    return [*found, _http_page("sluicegate rules serve", DOCUMENT, document)]


def _document(start: Callable[[], ServerProcess]) -> dict[str, Any]:
    with start() as server:
        status, document = server.ask("/openapi.json")
    if status != 200:
        raise RuntimeError(f"sluicegate {server.app} answers {status}: {document}")
    found: dict[str, Any] = document
    return found


def _http_page(service: str, at: str, document: dict[str, Any]) -> ReferencePage:
    info = document["info"]
    words = f"{info['summary']} A running service tells the same at GET {at}."
    body = _Body(f"HTTP: {service}", words)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            body.heading(f"{method.upper()} {path}")
            body.words(operation["summary"] + " " + operation.get("description", ""))
            rows = [
                (f"`{one['name']}`", one["in"], one.get("description", ""))
                for one in operation.get("parameters", ())
            ]
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                rows.append((f"`{kind}`", "body", _schema(content.get("schema", {}))))
            if rows:
                body.table(("parameter", "in", "what it is"), rows)
            body.table(
                ("answer", "what it is"),
                (
                    (f"`{status}`", f"{answer.get('description', '')} {_contents(answer)}")
                    for status, answer in operation["responses"].items()
                    if status != "default"
                ),
            )
    for title, schema in sorted(document["components"]["schemas"].items()):
        if schema.get("properties"):
            body.heading(title, f"schema-{title}")
            body.words(schema.get("description", ""))
            body.table(
                ("field", "type", "what it is"),
                (
                    (f"`{field}`", _schema(one), one.get("description", ""))
                    for field, one in schema["properties"].items()
                ),
            )
    return body.page(f"http-{service.split()[1]}")


def _contents(answer: dict[str, Any]) -> str:
    return ", ".join(
        f"`{kind}` {_schema(content.get('schema', {}))}".strip()
        for kind, content in answer.get("content", {}).items()
    )


def _schema(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"list of {_schema(schema.get('items', {}))}".strip()
    kind = schema.get("type", "")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def grpc_page(root: Path) -> ReferencePage:
    """The services and messages of the `.proto` files, with what stands beside them."""
    body = _Body(
        "gRPC",
        "The files are in src/sluicegate/protos; a running service tells them by reflection. "
        "Envoy's own envoy.service.ratelimit.v3 is answered beside them.",
    )
    for file in sorted((root / PROTOS).glob("*.proto")):
        lines = file.read_text(encoding="utf-8").split("\n")
        (package,) = (line for line in lines if line.startswith("package "))
        package = package.removeprefix("package ").rstrip(";")
        body.heading(f"{package}: {file.name}", slug_of(file.stem))
        above: list[str] = []
        at = 0
        while at < len(lines):
            line = lines[at]
            found = re.match(r"(service|message|enum) (\w+) \{", line)
            if line.startswith("//"):
                above.append(line.removeprefix("//").strip())
            elif found:
                end = at
                while not lines[end].rstrip().endswith("}") or lines[end].startswith("  "):
                    end += 1
                body.heading(f"{found[1]} {found[2]}", f"{package}.{found[2]}")
                if above:
                    body.words(" ".join(above))
                body.code("\n".join(lines[at : end + 1]))
                above, at = [], end
            elif not line.strip():
                if above:
                    body.words(" ".join(above))
                above = []
            at += 1
    return body.page("grpc")
