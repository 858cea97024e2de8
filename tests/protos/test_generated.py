"""What is checked in is what the script makes, and carries nothing that binds it to one version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from sluicegate.protos import PROTO_ROOT, descriptor_set, key_values_pb2, rate_limiter_pb2
from tests.protos.generate import MADE, SOURCES, generate


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("protos")
    generate(folder)
    return folder


@pytest.mark.parametrize("name", MADE)
def test_what_is_checked_in_is_what_the_script_makes(made: Path, name: str) -> None:
    remedy = "run python -m tests.protos.generate"
    assert (PROTO_ROOT / name).read_bytes() == (made / name).read_bytes(), remedy


def test_the_script_makes_these_files_and_no_others(made: Path) -> None:
    assert sorted(path.name for path in made.iterdir()) == sorted(MADE)
    there = {path.name for path in PROTO_ROOT.iterdir() if path.is_file()}
    assert there - set(MADE) == {"__init__.py"}


@pytest.mark.parametrize("name", [name for name in MADE if name.endswith(".py")])
def test_the_client_takes_any_runtime_that_the_extra_allows(name: str) -> None:
    code = (PROTO_ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"runtime_version|GRPC_GENERATED_VERSION|RuntimeError", code)
    assert "from sluicegate.protos import" in code or "pb2_grpc" not in name


@pytest.mark.parametrize(
    ("source", "client"), [*zip(SOURCES, (rate_limiter_pb2, key_values_pb2), strict=True)]
)
def test_the_descriptors_are_those_of_the_published_file(source: str, client: Any) -> None:
    files = FileDescriptorSet.FromString(descriptor_set(SOURCES[source])).file
    assert [file.name for file in files] == [source]
    # Whoever made it, it is the same file but for a protobuf compiler's names for JSON.
    for message in files[0].message_type:
        for field in [*message.field, *(f for m in message.nested_type for f in m.field)]:
            field.ClearField("json_name")
    assert files[0].SerializeToString() == client.DESCRIPTOR.serialized_pb


def test_the_first_fields_keep_their_numbers() -> None:
    # Clients in the field were made from these; nothing may move.
    request = rate_limiter_pb2.RateLimitRequest.DESCRIPTOR
    assert [(field.number, field.name) for field in request.fields] == [
        (1, "user_id"),
        (2, "resource_path"),
        (3, "headers"),
        (4, "weight"),
        (5, "priority"),
    ]
    response = rate_limiter_pb2.RateLimitResponse.DESCRIPTOR
    assert [(field.number, field.name) for field in response.fields][:4] == [
        (1, "allowed"),
        (2, "remaining_tokens"),
        (3, "retry_after_ms"),
        (4, "cluster_utilization_status"),
    ]
    kinds = [field.type for field in (*request.fields, *response.fields)]
    assert kinds[:5] == [9, 9, 11, 13, 14]
    assert kinds[5:9] == [8, 13, 3, 9]
    assert rate_limiter_pb2.PriorityBucket.items() == [
        ("PRIORITY_BUCKET_UNSPECIFIED", 0),
        ("CRITICAL", 1),
        ("DEGRADED", 2),
        ("BEST_EFFORT", 3),
        ("BULK", 4),
    ]
