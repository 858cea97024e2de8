"""The key-value service over gRPC: both servers, real clients, what is claimed, and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pool import DescriptorPool

from sluicegate.contracts.access import Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.contracts.key_values import tag_of
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, DEADLINE, QUOTA_SPENT, SHED, Reason
from sluicegate.doors.grpc.key_values import KeyValuesServicer
from sluicegate.doors.grpc.methods import (
    CallMetadata,
    GrpcError,
    GrpcStatus,
    Methods,
    metadata_of,
    status_of,
)
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.grpc.reflection import Reflection, files_of
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.doors.listener import Language, Listener
from sluicegate.protos import KEY_VALUES, descriptor_set
from sluicegate.protos import key_values_pb2 as pb
from sluicegate.protos.key_values_pb2_grpc import KeyValuesStub
from sluicegate.system import SystemClock
from sluicegate.wire.key_values_messages import KvBounds
from sluicegate.wire.row_stream import StreamRow, stream_of
from tests.doors.grpc.servers import SERVERS, Door, Grpcio, Native, native
from tests.doors.listening import run
from tests.doors.memory_service import ALL, NOW_US, READS, Keeper, MemoryService, refused

CALL_S_MAX = 20.0
MINE = (("authorization", "Bearer all"),)


class KvDoor(Door):
    """Who may speak: everybody reads the table t, and one may do all."""

    def __init__(self) -> None:
        super().__init__(READS)
        self.tokens = {"all": ALL}


@pytest.fixture(params=[f"{name}-{when}" for name in SERVERS for when in ("now", "later")])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[MemoryService, Native | Grpcio]]:
    name, when = request.param.split("-")
    service = MemoryService(far=when == "later")
    methods = KeyValuesServicer(service, service.clock).with_metadata
    server = SERVERS[name](Methods({}, {}, with_metadata=methods), KvDoor())
    yield service, server
    server.stop()


@pytest.fixture
def stub(served: tuple[MemoryService, Native | Grpcio]) -> Iterator[Any]:
    with grpc.insecure_channel(f"127.0.0.1:{served[1].port}") as channel:
        yield KeyValuesStub(channel)


def mine(call: Any, message: Any, *more: tuple[str, str]) -> Any:
    """As the one who may do all."""
    return call(message, timeout=CALL_S_MAX, metadata=(*MINE, *more))


def test_rows_are_written_read_and_removed(stub: Any, served: Any) -> None:
    clock = served[0].clock
    assert not mine(stub.Get, pb.GetRequest(table="t", partition=b"p")).HasField("row")
    writes = [
        pb.Write(partition=b"\xff", sort=b"%d" % number, value=b"v%d" % number, ttl_ms=number)
        for number in range(4)
    ]
    assert mine(stub.Write, pb.WriteRequest(table="t", writes=writes)) == pb.WriteResponse()
    answer = mine(stub.Get, pb.GetRequest(table="t", partition=b"\xff", sort=b"3"))
    assert answer.row == pb.Row(sort=b"3", value=b"v3", ttl_ms=3)
    places = [pb.Place(partition=b"\xff", sort=sort) for sort in (b"2", b"9", b"0")]
    each = mine(stub.GetEach, pb.GetEachRequest(table="t", places=places)).found
    assert [one.row.value for one in each] == [b"v2", b"", b"v0"]
    assert [one.HasField("row") for one in each] == [True, False, True]
    ask = pb.ScanRequest(table="t", partition=b"\xff", begin=b"1", reverse=True, rows_max=2)
    page = mine(stub.Scan, ask)
    assert [row.sort for row in page.rows] == [b"3", b"2"]
    ask.token = page.token
    page = mine(stub.Scan, ask)
    assert ([row.sort for row in page.rows], page.token) == ([b"1"], b"")
    walked = mine(stub.Walk, pb.WalkRequest(table="t", rows_max=3))
    assert len(walked.places) == 3
    assert walked.HasField("after")
    walked = mine(stub.Walk, pb.WalkRequest(table="t", after=walked.after))
    assert [place.sort for place in walked.places] == [b"3"]
    assert not walked.HasField("after")
    expire = pb.ExpireRequest(table="t", partition=b"\xff", sort=b"0", ttl_ms=5)
    assert mine(stub.Expire, expire).there
    assert served[0].rows()[b"\xff", b"0"] == (b"v0", clock.now_us() + 5_000)
    expire.sort = b"9"
    assert not mine(stub.Expire, expire).there
    removed = mine(stub.Remove, pb.RemoveRequest(table="t", places=places))
    assert removed.removed == 2
    deletions = [pb.Write(partition=b"\xff", sort=b"3", delete=True)]
    mine(stub.Write, pb.WriteRequest(table="t", writes=deletions))
    assert set(served[0].rows()) == {(b"\xff", b"1")}


def test_a_write_under_a_condition_is_made_or_tells_what_is_there(stub: Any) -> None:
    def write_if(value: bytes, **must: Any) -> Any:
        write = pb.Write(partition=b"p", value=value)
        condition = pb.Condition(**must)
        return mine(stub.WriteIf, pb.WriteIfRequest(table="t", write=write, condition=condition))

    assert not write_if(b"1", present=True).done
    assert write_if(b"1", absent=True).done
    again = write_if(b"2", absent=True)
    assert (again.done, again.row.value) == (False, b"1")
    assert not write_if(b"2", tag=tag_of(b"other")).done
    assert write_if(b"2", tag=tag_of(b"1")).done
    with pytest.raises(grpc.RpcError) as caught:
        write_if(b"3")
    assert failed(caught)[0] is grpc.StatusCode.INVALID_ARGUMENT


def failed(caught: Any) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """Status, message and trailing metadata."""
    error = caught.value
    return error.code(), error.details(), dict(error.trailing_metadata() or ())


def test_an_upload_is_sent_in_parts_and_made_visible_at_once(stub: Any, served: Any) -> None:
    begin = pb.BeginUploadRequest(table="t", name="u", mode="merge")
    begun = mine(stub.BeginUpload, begin)
    assert (begun.state, begun.by, begun.begun_ms) == ("open", "all", NOW_US // 1_000)
    rows = [StreamRow(b"p", b"%d" % number, b"v") for number in range(3)]
    streams = [stream_of(rows[:2]), stream_of(rows[2:])]
    digests = [sha256(one).digest() for one in streams]
    for number in (1, 0):
        part = pb.UploadPartRequest(
            table="t", name="u", number=number, rows=streams[number], sha256=digests[number]
        )
        upload = mine(stub.UploadPart, part)
    assert (list(upload.parts), upload.rows) == ([0, 1], 3)
    part.sha256 = bytes(32)
    with pytest.raises(grpc.RpcError) as caught:
        mine(stub.UploadPart, part)
    assert failed(caught)[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert mine(stub.ShowUpload, pb.ShowUploadRequest(table="t", name="u")).rows == 3
    assert served[0].rows() == {}
    whole = sha256(b"".join(digests)).digest()
    commit = pb.CommitUploadRequest(table="t", name="u", parts=2, rows=4, sha256=whole)
    with pytest.raises(grpc.RpcError) as caught:
        mine(stub.CommitUpload, commit)
    assert failed(caught)[0] is grpc.StatusCode.ABORTED
    commit.rows = 3
    assert mine(stub.CommitUpload, commit).state == "done"
    assert len(served[0].rows()) == 3
    begin.name = "v"
    mine(stub.BeginUpload, begin)
    left = mine(stub.AbandonUpload, pb.AbandonUploadRequest(table="t", name="v"))
    assert left.state == "abandoned"
    listed = mine(stub.ListUploads, pb.ListUploadsRequest(table="t"))
    assert [one.name for one in listed.uploads] == ["u", "v"]


def test_who_may_not_is_told_the_grant(stub: Any, served: Any) -> None:
    stub.Get(pb.GetRequest(table="t", partition=b"p"), timeout=CALL_S_MAX)
    for call, message in (
        (stub.Get, pb.GetRequest(table="other", partition=b"p")),
        (stub.Write, pb.WriteRequest(table="t")),
        (stub.ListUploads, pb.ListUploadsRequest(table="t")),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call(message, timeout=CALL_S_MAX)
        assert failed(caught)[0] is grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(grpc.RpcError) as caught:
        stub.Get(
            pb.GetRequest(table="t", partition=b"p"),
            timeout=CALL_S_MAX,
            metadata=(("authorization", "Bearer nobody"),),
        )
    assert failed(caught)[0] is grpc.StatusCode.UNAUTHENTICATED
    assert len(served[0].contexts) == 1


def test_what_a_call_claims_reaches_the_service(stub: Any, served: Any) -> None:
    message = pb.GetRequest(table="t", partition=b"p")
    stub.Get(message, metadata=MINE)
    plain = served[0].contexts[-1]
    assert (plain.identity.name, plain.criticality, plain.deadline_us, plain.strong) == (
        "all",
        None,
        None,
        False,
    )
    assert 0 <= NOW_US - plain.arrived_us < CALL_S_MAX * 1e6
    for _ in range(2):  # the second time the head is known
        mine(
            stub.Get, message, ("x-sluicegate-criticality", "bulk"), ("x-sluicegate-strong", "true")
        )
        call = served[0].contexts[-1]
        assert (call.criticality, call.strong) == (Criticality.BULK, True)
        # A client may round its timeout up on the way.
        assert 0 < call.deadline_us - NOW_US <= CALL_S_MAX * 1.05e6
    for name, value in (("x-sluicegate-criticality", "vital"), ("x-sluicegate-strong", "very")):
        with pytest.raises(grpc.RpcError) as caught:
            mine(stub.Get, message, (name, value))
        code, words, _ = failed(caught)
        assert (code, words.partition(":")[0]) == (grpc.StatusCode.INVALID_ARGUMENT, name)


PLAIN: Any = CallMetadata((), -1, 0)


def answered(call: Any, message: Any, metadata: CallMetadata = PLAIN) -> bytes:
    """What a method makes of a message, without a server in front of it."""
    head_sent: list[bytes] = []
    data = message if isinstance(message, bytes) else message.SerializeToString()

    async def story() -> None:
        answer = call(data, ALL, metadata)
        head_sent.append(answer if isinstance(answer, bytes) else await answer)

    run(story)
    return head_sent[0]


@pytest.mark.parametrize(
    ("left_us", "deadline_us"), [(-1, None), (0, NOW_US), (250_000, NOW_US + 250_000)]
)
def test_an_ask_began_with_its_call_and_its_time_is_left_from_now(
    left_us: int, deadline_us: int | None
) -> None:
    service = MemoryService()
    message, metadata = pb.GetRequest(table="t", partition=b"p"), CallMetadata((), left_us, 3_000)
    answered(KeyValuesServicer(service, service.clock).get, message, metadata)
    assert (service.contexts[-1].arrived_us, service.contexts[-1].deadline_us) == (
        NOW_US - 3_000,
        deadline_us,
    )


def test_each_method_keeps_to_the_bounds_that_the_servicer_has() -> None:
    service = MemoryService()
    bounds = KvBounds(places_max=1, writes_max=1, rows_max=3, value_bytes_max=4)
    servicer = KeyValuesServicer(service, service.clock, bounds)
    places, long = [pb.Place(), pb.Place()], pb.Write(value=b"12345")
    for call, message, field in (
        (servicer.get_each, pb.GetEachRequest(places=places), "places"),
        (servicer.remove, pb.RemoveRequest(places=places), "places"),
        (servicer.scan, pb.ScanRequest(rows_max=4), "rows_max"),
        (servicer.walk, pb.WalkRequest(rows_max=4), "rows_max"),
        (servicer.write, pb.WriteRequest(writes=[pb.Write(), pb.Write()]), "writes"),
        (servicer.write, pb.WriteRequest(writes=[long]), "writes[0].value"),
        (servicer.write_if, pb.WriteIfRequest(write=long), "write.value"),
    ):
        with pytest.raises(BadValue) as caught:
            answered(call, message)
        assert caught.value.field == field
    assert service.contexts == []


@pytest.mark.parametrize("far", [False, True])
def test_what_is_left_of_a_rows_time_is_left_from_the_answer_on(far: bool) -> None:
    service = MemoryService(far=far)
    servicer = KeyValuesServicer(service, service.clock)
    service.fill("t", {(b"p", b"s"): (b"v", 5_000)})
    row = pb.Row(sort=b"s", value=b"v", ttl_ms=5)
    place = {"partition": b"p", "sort": b"s"}
    got = answered(servicer.get, pb.GetRequest(table="t", **place))
    assert pb.GetResponse.FromString(got).row == row
    got = answered(servicer.get_each, pb.GetEachRequest(table="t", places=[pb.Place(**place)]))
    assert [one.row for one in pb.GetEachResponse.FromString(got).found] == [row]
    got = answered(servicer.scan, pb.ScanRequest(table="t", partition=b"p"))
    assert list(pb.ScanResponse.FromString(got).rows) == [row]
    write = pb.WriteIfRequest(table="t", write=pb.Write(partition=b"p", sort=b"s"))
    write.condition.absent = True
    got = answered(servicer.write_if, write)
    assert pb.WriteIfResponse.FromString(got) == pb.WriteIfResponse(row=row)


def test_what_lists_uploads_has_a_table_and_no_name() -> None:
    service = MemoryService()
    servicer = KeyValuesServicer(service, service.clock)
    answered(servicer.begin_upload, pb.BeginUploadRequest(table="t", name="u", mode="merge"))
    # A field that this message may have one day, of a type that a name has not.
    newer = pb.ListUploadsRequest(table="t").SerializeToString() + b"\x10\x01"
    answer = pb.ListUploadsResponse.FromString(answered(servicer.list_uploads, newer))
    assert [one.name for one in answer.uploads] == ["u"]


@pytest.mark.parametrize(
    ("reason", "after_us", "code", "pushback", "seconds"),
    [
        (QUOTA_SPENT, 1_234_500, grpc.StatusCode.RESOURCE_EXHAUSTED, "1235", "2"),
        (COST_ABOVE_LIMIT, -1, grpc.StatusCode.RESOURCE_EXHAUSTED, "-1", None),
        (SHED, 0, grpc.StatusCode.UNAVAILABLE, None, "1"),
        (DEADLINE, 0, grpc.StatusCode.DEADLINE_EXCEEDED, "-1", None),
    ],
)
def test_a_refusal_says_why_and_exactly_when_to_come_back(
    stub: Any,
    served: Any,
    reason: Reason,
    after_us: int,
    code: grpc.StatusCode,
    pushback: str | None,
    seconds: str | None,
) -> None:
    for call, message in (
        (stub.Get, pb.GetRequest(table="t", partition=b"p")),
        (stub.Scan, pb.ScanRequest(table="t", partition=b"p")),
    ):
        served[0].values.raise_next(refused(reason, after_us))
        with pytest.raises(grpc.RpcError) as caught:
            mine(call, message)
        status, words, trailing = failed(caught)
        assert (status, words) == (code, reason.sentence)
        assert trailing["sluicegate-reason"] == reason.name
        assert trailing["sluicegate-rule"] == "ann"
        assert trailing.get("grpc-retry-pushback-ms") == pushback
        assert trailing.get("retry-after") == seconds


def test_an_engine_that_is_away_and_a_bug_of_ours_are_told_apart(stub: Any, served: Any) -> None:
    for error, code in (
        (Unavailable("the engine", "nothing"), grpc.StatusCode.UNAVAILABLE),
        (Conflict("the row", "another"), grpc.StatusCode.ABORTED),
        (ZeroDivisionError(), grpc.StatusCode.INTERNAL),
    ):
        served[0].values.raise_next(error)
        with pytest.raises(grpc.RpcError) as caught:
            mine(stub.Get, pb.GetRequest(table="t", partition=b"p"))
        status, _, trailing = failed(caught)
        assert status is code
        assert not [name for name in trailing if name.startswith(("sluicegate", "grpc-retry"))]


def test_the_words_of_a_refusal_are_those_of_its_decision() -> None:
    assert metadata_of(GrpcError(GrpcStatus.ABORTED, "")) == []
    assert metadata_of(refused(None, 1)) == [
        (b"sluicegate-rule", b"ann"),
        (b"retry-after", b"1"),
        (b"grpc-retry-pushback-ms", b"1"),
    ]
    assert status_of(Conflict("a", "b"))[0] is GrpcStatus.ABORTED


def test_an_asyncio_client_through_the_listener_beside_everything_else() -> None:
    async def story() -> None:
        service = MemoryService()
        servicer = KeyValuesServicer(service, service.clock)
        reflection = Reflection(files_of(descriptor_set(KEY_VALUES)))
        methods = Methods({}, reflection.streams, with_metadata=servicer.with_metadata)
        settings = GrpcSettings(message_bytes_max=9 << 20)
        door = GrpcDoor(methods, Keeper(), SystemClock(), settings)
        kinds: Any = {Language.HTTP2: lambda _: door()}
        async with (
            Listener(["127.0.0.1:0"], kinds) as listener,
            grpc.aio.insecure_channel(str(listener.addresses[0])) as channel,
        ):
            stub: Any = KeyValuesStub(channel)
            value = bytes(range(256)) * 4_096
            writes = [
                pb.Write(partition=b"p", sort=b"%d" % number, value=value) for number in range(8)
            ]
            message = pb.WriteRequest(table="t", writes=writes)
            await stub.Write(message, timeout=CALL_S_MAX)
            assert len(service.rows()) == 8
            got = await asyncio.gather(
                *(
                    stub.Get(
                        pb.GetRequest(table="t", partition=b"p", sort=b"%d" % number),
                        timeout=CALL_S_MAX,
                    )
                    for number in range(8)
                )
            )
            assert all(one.row.value == value for one in got)

    run(story)


def test_who_waits_too_long_has_the_deadline_for_an_answer() -> None:
    async def never(_message: bytes, _by: Identity, _metadata: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    for name in SERVERS:
        server = SERVERS[name](Methods({}, {}, with_metadata={"/t.T/Never": never}), KvDoor())
        try:
            with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                call: Any = channel.unary_unary("/t.T/Never")
                with pytest.raises(grpc.RpcError) as caught:
                    call(b"", timeout=0.05)
                assert failed(caught)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        finally:
            server.stop()


def test_the_descriptors_name_every_method_that_is_served() -> None:
    pool = DescriptorPool()
    for file in files_of(descriptor_set(KEY_VALUES)):
        pool.AddSerializedFile(file)
    descriptor = pool.FindServiceByName("sluicegate.v1.KeyValues")
    service = MemoryService()
    servicer = KeyValuesServicer(service, service.clock)
    names = {f"/{descriptor.full_name}/{method.name}" for method in descriptor.methods}
    assert names == set(servicer.with_metadata) == set(servicer.grants)


@pytest.mark.parametrize("name", ["Get", "Write", "BeginUpload"])
def test_who_has_no_such_grant_on_any_table_is_refused_before_the_message_is_read(
    name: str,
) -> None:
    """What makes no sense is INVALID_ARGUMENT to who may ask, and to nobody else."""
    service = MemoryService()
    servicer = KeyValuesServicer(service, service.clock)
    methods = Methods({}, {}, with_metadata=servicer.with_metadata, grants=servicer.grants)
    codes = []
    with (
        native(methods, KvDoor()) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call: Any = channel.unary_unary(f"/sluicegate.v1.KeyValues/{name}")
        for metadata in ((), MINE):
            with pytest.raises(grpc.RpcError) as caught:
                call(b"\xff", timeout=CALL_S_MAX, metadata=metadata)
            codes.append(failed(caught)[0])
    mine_only = grpc.StatusCode.PERMISSION_DENIED
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    assert codes == [invalid if name == "Get" else mine_only, invalid]
