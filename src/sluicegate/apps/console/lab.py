"""Lab: the routes by which scenarios and drills are started, watched, stopped and compared.

It takes the grant `operate`, and a setting: whoever may start one uses this machine.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.apps.console.forms import FORM, FormGuard, go_to, html
from sluicegate.apps.console.lab_runs import SEED_MAX, SEEDS_MAX, LabRuns
from sluicegate.apps.console.pages import lab as pages
from sluicegate.apps.console.pages.changes import mistake
from sluicegate.apps.console.pages.frame import Render
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import SluicegateError
from sluicegate.doors.http.fields import query_of, whole_of
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.routes import Parameter, Route, RouteResponse, Work
from sluicegate.doors.http.schemas import TEXT

NUMBER_MAX: Final = 1 << 31


@final
class LabRoutes:
    """The routes below /lab."""

    def __init__(self, runs: LabRuns, guard: FormGuard, render: Render, clock: Clock) -> None:
        self._runs = runs
        self._guard = guard
        self._render = render
        self._clock = clock

    def routes(self) -> list[Route]:
        """The rows."""
        number = Parameter("id", "The run.", TEXT, required=True)
        other = Parameter("other", "The run beside it.", TEXT, required=True)
        return [
            self._get("/lab", self._list, "What can be run, and what was."),
            self._get("/lab/run", self._run, "A run, and what it prints.", number),
            self._get("/lab/output", self._output, "What it prints, as a part.", number),
            self._get("/lab/compare", self._compare, "Two runs.", number, other),
            self._post("/lab/start", self._start, "Starts one."),
            self._post("/lab/stop", self._stop, "Stops one."),
        ]

    async def _list(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        return await self._shown(request, by)

    async def _shown(
        self, request: HttpRequest, by: Identity, above: str = "", status: int = 200
    ) -> HttpReply:
        try:
            trials = await self._runs.trials()
        except SluicegateError as error:
            return html(self._render("lab", {"mistake": mistake(str(error))}, by), 503)
        mark, now_us = self._guard.field(request), self._clock.now_us()
        parts = pages.lab(trials, [*self._runs.runs.values()], mark, now_us, above)
        return html(self._render("lab", parts, by), status)

    def _run(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        run = self._runs.run(_number(request, "id"))
        parts = pages.run(run, self._guard.field(request))
        return html(self._render("lab", parts, by, title=f"Run {run.number}"))

    def _output(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        return html(pages.output(self._runs.run(_number(request, "id"))))

    def _compare(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        one, other = (self._runs.run(_number(request, name)) for name in ("id", "other"))
        return html(self._render("lab", pages.compare(one, other), by, title="Two runs"))

    async def _start(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        try:
            fields = self._guard.read(request, body)
            kind, _, name = fields.get("trial", "").partition(" ")
            seed = whole_of("seed", fields.get("seed", "0"), 0, SEED_MAX)
            seeds = whole_of("seeds", fields.get("seeds", "1"), 1, SEEDS_MAX)
            run = await self._runs.start(kind, name, seed, seeds, by.name)
        except SluicegateError as error:
            return await self._shown(request, by, mistake(str(error)), 400)
        return go_to(f"/lab/run?id={run.number}")

    async def _stop(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        try:
            number = whole_of("id", self._guard.read(request, body).get("id", ""), 0, NUMBER_MAX)
            self._runs.stop(number)
        except SluicegateError as error:
            return await self._shown(request, by, mistake(str(error)), 400)
        return go_to(f"/lab/run?id={number}")

    def _get(self, path: str, work: Work, summary: str, *parameters: Parameter) -> Route:
        page = {200: RouteResponse("The page.", "", "text/html")}
        return Route("GET", path, work, summary, page, grant=Grant.OPERATE, parameters=parameters)

    def _post(self, path: str, work: Work, summary: str) -> Route:
        done = {303: RouteResponse("To the run.", empty=True)}
        return Route("POST", path, work, summary, done, grant=Grant.OPERATE, content_types=(FORM,))


def _number(request: HttpRequest, name: str) -> int:
    return whole_of(name, query_of(request, ("id", "other")).get(name, ""), 0, NUMBER_MAX)
