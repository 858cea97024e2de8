"""App: what a service fills in; the host does the rest.

An app makes its parts in `__init__`, in the order in which they need one another, starts them in
`start` and closes them in the reverse order in `close`. It names its doors, and says what there is
to see of it. Workers, listeners, TLS, access, signals, drain, reload, health, metrics: `host.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from sluicegate import __version__
from sluicegate.contracts.access import Access, Identity, PeopleAccess
from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.health import status_routes
from sluicegate.doors.http.openapi import Schema, document_route
from sluicegate.doors.http.routes import Route
from sluicegate.doors.http.schemas import EVERYWHERE, FREE
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.policies.quota.refusal_pace import RefusalPace
from sluicegate.service.access_file import ReloadedAccess
from sluicegate.service.background import Background
from sluicegate.service.bounds import http_settings
from sluicegate.service.common_settings import ServiceSettings
from sluicegate.service.siblings import ALONE, WorkerId
from sluicegate.service.status import Part, WorkerStatus
from sluicegate.service.tracing import open_tracing
from sluicegate.system import SystemClock
from sluicegate.telemetry.prometheus import MetricFamily

S = TypeVar("S", bound=ServiceSettings)
GOING_AWAY: Final = "this instance is going away"
NO_SCHEMAS: Final[Mapping[str, Schema]] = {}


@dataclass(frozen=True, slots=True)
class GrpcServices:
    """The gRPC services of an app: their methods, descriptor sets, and names for health."""

    methods: Methods
    descriptors: Sequence[bytes] = ()
    names: Sequence[str] = ("",)


@dataclass(frozen=True, slots=True)
class Site:
    """What an HTTP door is for: all callers, or the siblings alone."""

    status: WorkerStatus
    access: PeopleAccess
    hosts: frozenset[str] | None


class App(Generic[S]):
    """One worker of a service. Made within the loop that serves."""

    name: ClassVar[str]

    def __init__(self, settings: S, worker: WorkerId = ALONE) -> None:
        self.settings = settings
        self.worker = worker
        self.clock = SystemClock()
        self.background = Background(self.name)
        self.tracing = open_tracing(settings, self.name, worker.number, self.clock)
        self.draining = False
        self.pace: RefusalPace | None = None  # of callers far over their quota, at every door

    # Life.

    async def start(self) -> None:
        """Start the parts; what raises here ends the service."""

    async def close(self) -> None:
        """Close the parts, the last that was made first; background work has ended before."""

    async def end(self) -> None:
        """End background work, then close the parts."""
        await self.background.close()
        await self.close()
        if self.tracing is not None:
            await self.tracing.close()

    def change(self, before: S) -> None:
        """Take over `self.settings`, of which some that are live differ from those before."""

    def reload(self) -> None:
        """Read again what can be read again; what is bad changes nothing."""

    # Doors. A language without a door is refused at the listener.

    def access(self) -> PeopleAccess:
        """Who may do what."""
        return ReloadedAccess(self.settings.access, self.settings.token)

    def change_callers(self, identities: Sequence[Identity]) -> None:
        """Take note of the callers that the access file names, at the start and on reload."""

    def grpc(self) -> GrpcServices | None:
        """The gRPC services."""
        return None

    def resp(self, access: Access) -> RespDoor | None:
        """The RESP door."""
        return None

    def http(self, site: Site) -> HttpHandler:
        """The handler of HTTP requests."""
        return self.handler_of(site, ())

    def handler_of(
        self,
        site: Site,
        routes: Sequence[Route],
        schemas: Mapping[str, Schema] = NO_SCHEMAS,
        handler: HttpHandler | None = None,
    ) -> HttpHandler:
        """A handler of these routes, and of health, metrics, state and their OpenAPI document."""
        handler = handler or HttpHandler(site.access, site.hosts)
        handler.serve(
            (
                *routes,
                *status_routes(site.status, metrics_open=self.settings.metrics_open),
                document_route(handler.openapi),
            ),
            {**schemas, **EVERYWHERE, "State": {**FREE, "description": "What it is doing."}},
            title=f"Sluicegate {self.name}",
            summary=(type(self).__doc__ or "").partition("\n")[0],
            version=__version__,
        )
        return handler

    def http_settings(self) -> HttpSettings:
        """Bounds of HTTP."""
        return http_settings(self.settings)

    # What there is to see.

    def state(self) -> Mapping[str, Part]:
        """The parts of /v1/state, each a function that shows it."""
        return {}

    def metrics(self) -> Iterable[MetricFamily]:
        """The metrics of all parts."""
        return ()

    def summary(self) -> str:
        """The end of the line that says it is ready."""
        return ""

    def serving(self) -> bool:
        """Whether new work is welcome."""
        return not self.draining

    def not_ready(self) -> str:
        """Why it should get no traffic; empty if it should."""
        return GOING_AWAY if self.draining else ""

    def not_alive(self) -> str:
        """Why only a restart can help this process; empty if it works."""
        return ""


AnyApp = App[Any]
AppFactory = Callable[[Any, WorkerId], AnyApp]
