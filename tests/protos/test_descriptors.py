"""Envoy's service as we describe it: the same names, numbers and types as in Envoy's own."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import Default, DescriptorPool

from sluicegate.contracts.errors import BadValue
from sluicegate.protos import KEY_VALUES, MESH, SLUICEGATE, descriptor_set
from tests.protos.mesh_tables import FILES

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"


@pytest.fixture(scope="module")
def ours() -> DescriptorPool:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptor_set(MESH)).file:
        pool.AddSerializedFile(file.SerializeToString())  # which refuses what is not yet imported
    return pool


@pytest.fixture(scope="module")
def theirs() -> Any:
    importlib.import_module("envoy.service.ratelimit.v3.rls_pb2")
    return Default()


def messages() -> list[str]:
    return [
        f"{'.'.join(file.path.split('/')[:-1])}.{message.name}"
        for file in FILES
        for message in file.messages
    ]


def choices() -> list[str]:
    return [
        f"{'.'.join(file.path.split('/')[:-1])}.{choice.name}"
        for file in FILES
        for choice in file.choices
    ]


@pytest.mark.parametrize("name", messages())
def test_every_field_has_the_number_and_the_type_that_it_has_there(
    ours: Any, theirs: Any, name: str
) -> None:
    our, their = ours.FindMessageTypeByName(name), theirs.FindMessageTypeByName(name)
    assert our.file.name == their.file.name
    assert our.GetOptions().map_entry == their.GetOptions().map_entry
    for field in our.fields:
        other = their.fields_by_number[field.number]
        assert (field.name, field.type, field.is_repeated) == (
            other.name,
            other.type,
            other.is_repeated,
        )
        for kind in ("message_type", "enum_type", "containing_oneof"):
            here, there = getattr(field, kind), getattr(other, kind)
            assert (here and here.full_name) == (there and there.full_name)


@pytest.mark.parametrize("name", choices())
def test_every_value_has_the_number_that_it_has_there(ours: Any, theirs: Any, name: str) -> None:
    our, their = ours.FindEnumTypeByName(name), theirs.FindEnumTypeByName(name)
    assert {v.name: v.number for v in our.values} == {v.name: v.number for v in their.values}


def test_the_method_takes_and_gives_what_it_does_there(ours: Any, theirs: Any) -> None:
    our, their = ours.FindServiceByName(SERVICE), theirs.FindServiceByName(SERVICE)
    assert [
        (method.name, method.input_type.full_name, method.output_type.full_name)
        for method in our.methods
    ] == [
        (method.name, method.input_type.full_name, method.output_type.full_name)
        for method in their.methods
    ]


def test_nothing_of_envoy_enters_the_pool_that_a_process_shares() -> None:
    # A process may import Envoy's own classes before or after us.
    code = """
from google.protobuf.descriptor_pool import Default
from sluicegate import protos
from sluicegate.protos import rate_limiter_pb2
assert protos.descriptor_set(protos.MESH) and protos.descriptor_set(protos.SLUICEGATE)
try:
    Default().FindFileByName("envoy/service/ratelimit/v3/rls.proto")
except KeyError:
    from envoy.service.ratelimit.v3 import rls_pb2
else:
    raise SystemExit("it is there")
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == 0


def test_reading_descriptors_takes_no_protobuf_package() -> None:
    code = """
import sys
from sluicegate.protos import SLUICEGATE, KEY_VALUES, descriptor_set
import sluicegate.doors.grpc.mesh, sluicegate.doors.grpc.rate_limiter, sluicegate.wire.mesh_json
import sluicegate.doors.grpc.key_values
assert descriptor_set(SLUICEGATE) and descriptor_set(KEY_VALUES)
assert not [name for name in sys.modules if name.startswith(("google", "grpc"))]
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == 0


def test_a_set_that_is_none_is_refused_by_the_names_of_those_there_are() -> None:
    with pytest.raises(BadValue, match=f"{SLUICEGATE}, {KEY_VALUES} or {MESH}"):
        descriptor_set("rls")
