"""A Flask shop of the tests: its pages wait until the test lets them go on.

Files in SHOP_FOLDER connect both: the names of pages that have begun are in `begun`, and a page
returns once `open` exists.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from flask import Flask, Response, request

from sluicegate.resilience.context import remaining_us, served_request
from sluicegate.system import now_us

folder = Path(os.environ["SHOP_FOLDER"])
app = Flask(__name__)
PIECE = b"x" * 65_536


def begin(name: str) -> None:
    with (folder / "begun").open("a") as begun:
        begun.write(f"{name}\n")


@app.get("/page/<name>")
def page(name: str) -> str:
    begin(name)
    while not (folder / "open").exists():
        time.sleep(0.005)
    return name


@app.get("/work")
def work() -> str:
    time.sleep(0.04)
    return "done"


@app.get("/healthz")
@app.get("/readyz")
def health() -> str:
    return "ok"


@app.get("/pid")
def pid() -> str:
    return str(os.getpid())


@app.route("/die", methods=["GET", "POST"])
def die() -> str:
    begin("die")
    os._exit(9)


@app.get("/environ")
def environ() -> dict[str, str]:
    return {name: str(value) for name, value in request.environ.items()}


@app.get("/context")
def context() -> dict[str, object]:
    served = served_request()
    assert served is not None
    return {"left_us": remaining_us(now_us()), "criticality": served.criticality.name}


@app.get("/pieces/<int:count>")
def pieces(count: int) -> Response:
    begin("pieces")
    return Response(PIECE for _ in range(count))


@app.get("/endless")
def endless() -> Response:
    def go_on() -> Iterator[bytes]:
        try:
            while True:
                yield b"more\n"
                time.sleep(0.005)
        finally:
            begin("closed")

    return Response(go_on())


@app.post("/size")
def size() -> str:
    begin("size")
    total = 0
    while piece := request.stream.read(65_536):
        total += len(piece)
    return str(total)


@app.get("/half")
def half() -> Response:
    def go_on() -> Iterator[bytes]:
        yield b"begun"
        os._exit(9)

    return Response(go_on(), headers={"Content-Length": "100"})
