"""The guide to the limiter over gRPC: its Python runs as it stands, against a real server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.grpc.rate_limiter import RateLimiterServicer
from sluicegate.protos import PROTO_ROOT
from sluicegate.wire.mesh_messages import MESH_BOUNDS
from sluicegate.wire.rate_limiter_messages import CHECK_BOUNDS
from tests.doors.grpc.grpcio_thread import serve
from tests.doors.grpc.limits_service import SmallService

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "limiter-grpc.md"
TEXT = PAGE.read_text(encoding="utf-8")
# Not "python": those blocks run without a server.
BLOCK = re.compile(r"^```py\n(.*?)^```", re.DOTALL | re.MULTILINE)
YAML = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_code_of_the_page_runs_against_a_server() -> None:
    namespace: dict[str, Any] = {}
    with serve(Methods(RateLimiterServicer(SmallService()).unary, {})) as port:
        blocks = BLOCK.findall(TEXT)
        assert len(blocks) >= 5
        for number, block in enumerate(blocks, 1):
            code = block.replace("127.0.0.1:7070", f"127.0.0.1:{port}")
            # No caller's patience: a busy machine is not what is tested.
            code = code.replace("timeout=0.2)", "timeout=60)")
            exec(compile(code, f"{PAGE.name}, block {number}", "exec"), namespace)


def test_the_bounds_of_the_page_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", TEXT, re.MULTILINE))
    assert {name: int(value.replace(",", "")) for name, value in rows.items()} == {
        "descriptors_max": MESH_BOUNDS.descriptors_max,
        "entries_max": MESH_BOUNDS.entries_max,
        "text_bytes_max": MESH_BOUNDS.text_bytes_max,
        "headers_max": CHECK_BOUNDS.headers_max,
        "batch_max": CHECK_BOUNDS.batch_max,
    }
    assert MESH_BOUNDS.text_bytes_max == CHECK_BOUNDS.text_bytes_max


def test_the_page_names_a_file_that_is_there_and_a_configuration_that_asks_us() -> None:
    assert (PROTO_ROOT / "sluicegate/v1/rate_limiter.proto").is_file()
    (configuration,) = (yaml.safe_load(block) for block in YAML.findall(TEXT))
    clusters = configuration["static_resources"]["clusters"]
    address = clusters[0]["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    assert address["address"]["socket_address"]["port_value"] == 7070
