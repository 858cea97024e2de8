"""The smallest service: an echo that is limited, in three languages, on the host of all services.

    python examples/echo_service.py --listen 127.0.0.1:7099 --rate 5/second
    redis-cli -p 7099 SAY hello
    curl -d hello http://127.0.0.1:7099/echo
    grpcurl -plaintext 127.0.0.1:7099 grpc.health.v1.Health/Check

Workers, TLS, access, health, /metrics, /v1/state, reload (SIGHUP) and drain (SIGTERM) come with
the host; `--help` lists their flags.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

from sluicegate import Limiter
from sluicegate.contracts.access import Access, Grant, Identity
from sluicegate.contracts.errors import Refused
from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.routes import Route, RouteResponse
from sluicegate.doors.resp.connection_commands import CONNECTION
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.session import Command, CommandTable, Session
from sluicegate.service.app import App, GrpcServices, Site
from sluicegate.service.command import add_service_flags, settings_to_serve
from sluicegate.service.common_settings import WorkerSettings
from sluicegate.service.host import serve
from sluicegate.service.settings import Setting
from sluicegate.service.siblings import ALONE, WorkerId
from sluicegate.wire.resp import encode_reply


@dataclass(frozen=True, kw_only=True)
class EchoSettings(WorkerSettings):
    """The echo."""

    VARIABLES: ClassVar[str] = "ECHO_"
    rate: Annotated[str, Setting("how often each caller may ask", metavar="RATE")] = "10/second"


@final
class EchoApp(App[EchoSettings]):
    """Returns what a caller sends, as often as the rate allows."""

    name: ClassVar[str] = "echo"

    def __init__(self, settings: EchoSettings, worker: WorkerId = ALONE) -> None:
        super().__init__(settings, worker)
        self.limiter = Limiter(settings.rate)

    def echo(self, text: bytes, identity: Identity) -> bytes:
        """The text, or `Refused`."""
        identity.require(Grant.CHECK)
        decision = self.limiter.take(identity.name)
        if not decision.allowed:
            raise Refused(decision)
        return text

    def grpc(self) -> GrpcServices:
        """One method, whose message comes back as it is."""
        return GrpcServices(Methods({"/echo.Echo/Say": self.echo}, {}))

    def resp(self, access: Access) -> RespDoor:
        """SAY, beside what every connection has."""

        def say(session: Session, parts: list[bytes]) -> bytes:
            assert session.identity is not None
            return encode_reply(self.echo(parts[1], session.identity))

        row = Command("SAY", 2, 2, False, say, "Return the text")
        return RespDoor(self, access, table=CommandTable((*CONNECTION, row), lambda _: None))

    def http(self, site: Site) -> HttpHandler:
        """POST /echo, beside health, metrics and state."""

        def say(_request: HttpRequest, identity: Identity, body: bytes) -> HttpReply:
            return HttpReply(200, self.echo(body, identity))

        done = {200: RouteResponse("The body.")}
        route = Route("POST", "/echo", say, "Return the body.", done, content_types=("text/plain",))
        return self.handler_of(site, (route,))


def main() -> int:
    """Serve until a signal ends it."""
    parser = ArgumentParser(prog="echo_service.py", description=__doc__)
    add_service_flags(parser, EchoSettings)
    settings = settings_to_serve(EchoSettings, parser.parse_args())
    return 0 if settings is None else serve("echo", settings, EchoApp, settings.workers)


if __name__ == "__main__":
    sys.exit(main())
