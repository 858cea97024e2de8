"""Reflection, partial against the kept implementation and asked by its own client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.grpc.reflection import V1, V1ALPHA, Reflection, files_of
from tests.doors.grpc.servers import SERVERS, Door

RLS = "envoy.service.ratelimit.v3.RateLimitService"


def described(
    file: FileDescriptor, files_by_name: dict[str, bytes] | None = None
) -> dict[str, bytes]:
    """A file and all that it imports, serialized."""
    files_by_name = {} if files_by_name is None else files_by_name
    if file.name not in files_by_name:
        files_by_name[file.name] = file.serialized_pb
        for each in file.dependencies:
            described(each, files_by_name)
    return files_by_name


def mesh_files() -> dict[str, bytes]:
    from envoy.service.ratelimit.v3 import rls_pb2

    return {**described(rls_pb2.DESCRIPTOR), **described(health_pb2.DESCRIPTOR)}


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return mesh_files()


@pytest.fixture(scope="module")
def reflection(files: dict[str, bytes]) -> Reflection:
    return Reflection(files.values(), also=["grpc.reflection.v1.ServerReflection"])


def answer_to(reflection: Reflection, **what: Any) -> Any:
    request = reflection_pb2.ServerReflectionRequest(host="here", **what)
    answer = reflection_pb2.ServerReflectionResponse.FromString(
        reflection.answer(request.SerializeToString())
    )
    assert answer.original_request == request
    assert answer.valid_host == "here"
    return answer


def test_the_services_are_listed(reflection: Reflection) -> None:
    listed = answer_to(reflection, list_services="*").list_services_response.service
    assert [each.name for each in listed] == [
        RLS,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
    ]


@pytest.mark.parametrize(
    "symbol",
    [
        RLS,
        f"{RLS}.ShouldRateLimit",
        "envoy.service.ratelimit.v3.RateLimitRequest",
        "envoy.service.ratelimit.v3.RateLimitResponse.Code",
        "envoy.service.ratelimit.v3.RateLimitResponse.OVER_LIMIT",
        "envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit",
        "envoy.service.ratelimit.v3.RateLimitRequest.domain",
    ],
)
def test_a_symbol_brings_its_file_first_and_all_that_it_imports(
    reflection: Reflection, files: dict[str, bytes], symbol: str
) -> None:
    got = answer_to(reflection, file_containing_symbol=symbol).file_descriptor_response
    names = [FileDescriptorProto.FromString(each).name for each in got.file_descriptor_proto]
    assert names[0] == "envoy/service/ratelimit/v3/rls.proto"
    assert len(set(names)) == len(names)
    imported = {
        each for name in names for each in FileDescriptorProto.FromString(files[name]).dependency
    }
    assert imported <= set(names)


def test_extensions_are_found_by_their_number(reflection: Reflection) -> None:
    extendee = "google.protobuf.MessageOptions"
    numbers = answer_to(reflection, all_extension_numbers_of_type=extendee)
    answer = numbers.all_extension_numbers_response
    assert answer.base_type_name == extendee
    assert 1071 in answer.extension_number  # PGV's `disabled`
    by = reflection_pb2.ExtensionRequest(containing_type=extendee, extension_number=1071)
    got = answer_to(reflection, file_containing_extension=by).file_descriptor_response
    assert got.file_descriptor_proto[0] == mesh_files()["validate/validate.proto"]


def test_what_is_not_there_is_not_found(reflection: Reflection) -> None:
    for what in (
        {"file_by_filename": "no.proto"},
        {"file_containing_symbol": "no.Such"},
        {"all_extension_numbers_of_type": "no.Such"},
        {"file_containing_extension": reflection_pb2.ExtensionRequest(containing_type="no")},
    ):
        assert answer_to(reflection, **what).error_response.error_code == 5
    assert answer_to(reflection).error_response.error_code == 3


def test_a_set_is_taken_apart_into_its_files(files: dict[str, bytes]) -> None:
    whole = FileDescriptorSet(file=[FileDescriptorProto.FromString(x) for x in files.values()])
    names = [FileDescriptorProto.FromString(x).name for x in files_of(whole.SerializeToString())]
    assert names == list(files)


def test_files_that_import_each_other_are_told_once_each() -> None:
    one = FileDescriptorProto(name="one.proto", dependency=["two.proto"])
    two = FileDescriptorProto(name="two.proto", dependency=["one.proto", "missing.proto"])
    reflection = Reflection([one.SerializeToString(), two.SerializeToString()])
    got = answer_to(reflection, file_by_filename="two.proto").file_descriptor_response
    names = [FileDescriptorProto.FromString(each).name for each in got.file_descriptor_proto]
    assert names == ["two.proto", "one.proto"]


def test_what_is_no_descriptor_is_refused() -> None:
    with pytest.raises(BadValue, match=r"reflection\.files"):
        Reflection([b""])


@given(st.binary(max_size=60))
def test_any_question_is_answered_or_refused(garbage: bytes) -> None:
    reflection = Reflection([health_pb2.DESCRIPTOR.serialized_pb])
    with suppress(BadValue):
        assert reflection.answer(garbage)


@pytest.fixture(params=list(SERVERS))
def channel(request: pytest.FixtureRequest, reflection: Reflection) -> Iterator[Any]:
    server = SERVERS[request.param](Methods({}, reflection.streams), Door())
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as made:
        yield made
    server.stop()


def test_the_kept_client_builds_the_service_from_what_it_is_told(channel: Any) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    assert RLS in database.get_services()
    service = DescriptorPool(database).FindServiceByName(RLS)
    method = service.FindMethodByName("ShouldRateLimit")
    fields = [each.name for each in method.input_type.fields]
    assert fields == ["domain", "descriptors", "hits_addend"]


@pytest.mark.parametrize("path", [V1, V1ALPHA])
def test_both_versions_answer_question_after_question(channel: Any, path: str) -> None:
    call = channel.stream_stream(
        path,
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    questions = [reflection_pb2.ServerReflectionRequest(list_services="")] * 3
    assert len(list(call(iter(questions), timeout=60))) == 3
    assert reflection_pb2_grpc is not None
