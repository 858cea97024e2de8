"""What our own codecs are worth: HTTP/2 beside the `h2` library, messages beside upb.

A server's share of a unary call on one connection, from the bytes read to the bytes to write: ours
is `wire/h2`, the peer is `h2` (which shares the `hpack` package with us). Then messages: from bytes
to the value that the service decides on, and from its decision to bytes; the peer is the `protobuf`
package with its C implementation, upb. Beside it stands upb alone, without the step to our values.

Ours are kept where they are at least `TIMES_MIN` as fast; that is judged on the compiled build.

    python -m benchmarks.codecs
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import h2.config
import h2.connection
import h2.events
from envoy.service.ratelimit.v3 import rls_pb2
from google.protobuf.internal import api_implementation
from hpack import Encoder

from benchmarks.rounds import Bars, build_of, calls_of, interleaved, print_results, ratio
from sluicegate.contracts.checks import (
    CheckRequest,
    CheckResponse,
    Descriptor,
    MeshLimit,
    MeshRequest,
    MeshResponse,
    MeshStatus,
)
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.protos import rate_limiter_pb2
from sluicegate.wire import mesh_messages, rate_limiter_messages
from sluicegate.wire.h2 import connection, frames
from sluicegate.wire.h2.blocks import block
from sluicegate.wire.h2.fields import RequestHead
from sluicegate.wire.h2.settings import H2Settings
from sluicegate.wire.h2.stream import H2Stream

TIMES_MIN = 2.0
BUILD = build_of(str(connection.__file__))
STREAMS = 1_600  # calls on a connection
TOGETHER = 16  # of them in one read
MESSAGES = 20_000
BODY = b"\0\0\0\0\x20" + bytes(32)
REPLY = b"\0\0\0\0\x18" + bytes(24)
REQUEST_FIELDS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
    (":authority", "limiter.example:7070"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("user-agent", "grpc-c++/1.60"),
]
RESPONSE_FIELDS = [(b":status", b"200"), (b"content-type", b"application/grpc")]
TRAILER_FIELDS = [(b"grpc-status", b"0")]


def reads() -> list[bytes]:
    """What a client sends on one connection, as it is read."""
    encoder = Encoder()
    found = [frames.PREFACE + frames.settings_frame([])]
    for first in range(0, STREAMS, TOGETHER):
        parts = []
        for number in range(first, first + TOGETHER):
            stream_id = 2 * number + 1
            fields = encoder.encode(REQUEST_FIELDS)
            head = frames.frame_head(len(fields), frames.HEADERS, frames.END_HEADERS, stream_id)
            data = frames.frame_head(len(BODY), frames.DATA, frames.END_STREAM, stream_id)
            parts += [head, fields, data, BODY]
        # What a client gives back of the window that the responses before it took.
        parts.append(frames.window_update(0, TOGETHER * len(REPLY)))
        found.append(b"".join(parts))
    return found


class Echo:
    """The owner of our connection: answers each call once it is whole."""

    def __init__(self) -> None:
        self.h2 = connection.H2Connection(H2Settings(), self, 0)
        self.head = block(RESPONSE_FIELDS)
        self.tail = block(TRAILER_FIELDS)

    def interpret(self, head: RequestHead) -> object:
        """Every request is the same."""
        return head.path

    def interpret_oversized(self) -> object:
        """None is."""
        return b""

    def begin_stream(self, stream: H2Stream) -> None:
        """Wait for the body."""

    def receive_data(self, stream: H2Stream, data: bytes, start: int, end: int, last: bool) -> None:
        """Answer."""
        if last:
            self.h2.reply(stream, self.head, REPLY, self.tail)

    def drop_stream(self, stream: H2Stream) -> None:
        """Nothing waits."""

    def resume_stream(self, stream: H2Stream) -> None:
        """Nothing waits."""


def ours_h2(sent: list[bytes]) -> Callable[[], int]:
    """Our connection, from its first byte to the last answer."""

    def run() -> int:
        echo = Echo()
        for data in sent:
            echo.h2.receive(data, 0)
            while echo.h2.waiting:
                echo.h2.read_on(0)
            echo.h2.take()
        assert echo.h2.answered == STREAMS
        return STREAMS

    return run


def theirs_h2(sent: list[bytes]) -> Callable[[], int]:
    """The same with the `h2` library."""
    config = h2.config.H2Configuration(client_side=False, header_encoding=None)

    def run() -> int:
        peer = h2.connection.H2Connection(config)
        peer.initiate_connection()
        answered = 0
        for data in sent:
            for event in peer.receive_data(data):
                if isinstance(event, h2.events.StreamEnded):
                    stream_id = event.stream_id
                    peer.send_headers(stream_id, RESPONSE_FIELDS)
                    peer.send_data(stream_id, REPLY)
                    peer.send_headers(stream_id, TRAILER_FIELDS, end_stream=True)
                    answered += 1
                elif isinstance(event, h2.events.DataReceived):
                    peer.acknowledge_received_data(
                        event.flow_controlled_length or 0, event.stream_id or 0
                    )
            peer.data_to_send()
        assert answered == STREAMS
        return STREAMS

    return run


# Messages: the same bytes to the same values, and back.

MESH = rls_pb2.RateLimitRequest(domain="edge", hits_addend=2)
for entries in ([("user", "ann"), ("path", "/api/v1/playback")], [("tenant", "gold")]):
    added = MESH.descriptors.add()
    for key, value in entries:
        added.entries.add(key=key, value=value)
MESH_BYTES = MESH.SerializeToString()
MESH_RESPONSE = MeshResponse(
    True,
    [
        MeshStatus(False, MeshLimit(1_000, 1, "edge/user"), 512, 400_000),
        MeshStatus(True, MeshLimit(100, 2, "edge/tenant"), 0, 31_000_000),
    ],
)
CHECK = rate_limiter_pb2.RateLimitRequest(
    user_id="ann",
    resource_path="/api/v1/playback",
    headers={"x-client-type": "tv"},
    weight=2,
    priority=rate_limiter_pb2.PriorityBucket.DEGRADED,
)
CHECK_BYTES = CHECK.SerializeToString()
CHECK_RESPONSE = CheckResponse(
    Decision(True, 512, 0, 400_000, None, "play"), 1_000, Criticality.DEGRADED
)
PRIORITIES: list[Criticality | None] = [None, *Criticality]


def upb_mesh_request() -> MeshRequest:
    """Envoy's request by upb."""
    found = rls_pb2.RateLimitRequest.FromString(MESH_BYTES)
    return MeshRequest(
        found.domain,
        tuple(
            Descriptor(tuple((entry.key, entry.value) for entry in descriptor.entries))
            for descriptor in found.descriptors
        ),
        found.hits_addend,
    )


def upb_mesh_response() -> bytes:
    """Envoy's response by upb."""
    response = rls_pb2.RateLimitResponse(overall_code=2 if MESH_RESPONSE.over else 1)
    for status in MESH_RESPONSE.statuses:
        added = response.statuses.add(
            code=2 if status.over else 1, limit_remaining=status.remaining
        )
        if status.limit is not None:
            limit = added.current_limit
            limit.requests_per_unit = status.limit.requests_per_unit
            limit.unit = status.limit.unit
            limit.name = status.limit.name
        seconds, rest_us = divmod(status.reset_us, 1_000_000)
        added.duration_until_reset.seconds = seconds
        added.duration_until_reset.nanos = rest_us * 1_000
    return bytes(response.SerializeToString())


def upb_check_request() -> CheckRequest:
    """The native request by upb."""
    found = rate_limiter_pb2.RateLimitRequest.FromString(CHECK_BYTES)
    return CheckRequest(
        found.user_id,
        found.resource_path,
        headers={name.lower(): value for name, value in found.headers.items()},
        cost=found.weight or 1,
        priority=PRIORITIES[found.priority],
    )


def upb_check_response() -> bytes:
    """The native response by upb."""
    decision = CHECK_RESPONSE.decision
    return rate_limiter_pb2.RateLimitResponse(
        allowed=decision.allowed,
        remaining_tokens=decision.remaining,
        retry_after_ms=-(-decision.retry_after_us // 1_000),
        cluster_utilization_status=CHECK_RESPONSE.status,
        reset_after_ms=-(-decision.reset_after_us // 1_000),
        limit=CHECK_RESPONSE.limit,
        rule_id=decision.rule_id,
        reason="" if decision.reason is None else decision.reason.name,
        without_store=decision.degraded,
        priority=rate_limiter_pb2.PriorityBucket.ValueType(CHECK_RESPONSE.priority + 1),
    ).SerializeToString()


def same_values() -> None:
    """Both sides must mean the same before they are timed."""
    ours, theirs = mesh_messages.parse_mesh_request(MESH_BYTES), upb_mesh_request()
    assert (ours.domain, ours.cost) == (theirs.domain, theirs.cost)
    assert [one.entries for one in ours.descriptors] == [one.entries for one in theirs.descriptors]
    assert mesh_messages.encode_mesh_response(MESH_RESPONSE) == upb_mesh_response()
    check, other = rate_limiter_messages.parse_check_request(CHECK_BYTES), upb_check_request()
    for name in ("user_id", "resource_path", "headers", "cost", "priority"):
        assert getattr(check, name) == getattr(other, name)
    assert rate_limiter_messages.encode_check_response(CHECK_RESPONSE) == upb_check_response()


def judge(bars: Bars, times: float, claim: str) -> None:
    """Hold the compiled build to the bar; print what the interpreted one does."""
    if BUILD == "compiled":
        bars.check(times >= TIMES_MIN, claim)
    else:
        print(f"  {claim}, not judged: {BUILD}")


def messages(bars: Bars) -> None:
    """Four messages, each against upb."""
    parse_mesh = rls_pb2.RateLimitRequest.FromString
    parse_check = rate_limiter_pb2.RateLimitRequest.FromString
    cases: tuple[tuple[str, Callable[[], object], Callable[[], object], Callable[[], object]], ...]
    cases = (
        (
            "read Envoy's RateLimitRequest",
            lambda: mesh_messages.parse_mesh_request(MESH_BYTES),
            upb_mesh_request,
            lambda: parse_mesh(MESH_BYTES),
        ),
        (
            "write Envoy's RateLimitResponse",
            lambda: mesh_messages.encode_mesh_response(MESH_RESPONSE),
            upb_mesh_response,
            rls_pb2.RateLimitResponse.FromString(upb_mesh_response()).SerializeToString,
        ),
        (
            "read our RateLimitRequest",
            lambda: rate_limiter_messages.parse_check_request(CHECK_BYTES),
            upb_check_request,
            lambda: parse_check(CHECK_BYTES),
        ),
        (
            "write our RateLimitResponse",
            lambda: rate_limiter_messages.encode_check_response(CHECK_RESPONSE),
            upb_check_response,
            rate_limiter_pb2.RateLimitResponse.FromString(upb_check_response()).SerializeToString,
        ),
    )
    for title, ours, theirs, alone in cases:
        results = interleaved(
            {
                "ours": calls_of(ours, MESSAGES),
                "upb": calls_of(theirs, MESSAGES),
                "(upb alone)": calls_of(alone, MESSAGES),
            }
        )
        print_results(title, results, "ours")
        times = ratio(results, "upb", "ours")
        judge(bars, times, f"{title}: {times:.1f} x upb (bar {TIMES_MIN:g} x)")


def main() -> None:
    """Run it."""
    if api_implementation.Type() != "upb":
        sys.exit("this benchmark needs upb; reinstall protobuf from a wheel")
    print(f"codecs, {BUILD}")
    bars = Bars()
    same_values()
    sent = reads()
    results = interleaved({"ours": ours_h2(sent), "h2": theirs_h2(sent)})
    print_results(f"HTTP/2, a unary call, {TOGETHER} in a read", results, "ours")
    times = ratio(results, "h2", "ours")
    judge(bars, times, f"HTTP/2: {times:.1f} x h2 (bar {TIMES_MIN:g} x)")
    messages(bars)
    bars.exit()


if __name__ == "__main__":
    main()
