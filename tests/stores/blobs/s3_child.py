"""The child: moto's S3 on one port of the loopback, and one request at a time.

moto looks whether a condition holds and writes afterwards, with no lock between the two; a server
that is served one request after another enforces conditions as S3 does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple


def main(port: int, page: int) -> None:
    os.environ["MOTO_S3_DEFAULT_MAX_KEYS"] = str(page)
    moto = DomainDispatcherApplication(create_backend_app)
    alone = Lock()

    def one_by_one(environ: dict[str, Any], answer: Callable[..., Any]) -> Iterable[bytes]:
        with alone:
            return list(moto(environ, answer))

    run_simple("127.0.0.1", port, one_by_one, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
