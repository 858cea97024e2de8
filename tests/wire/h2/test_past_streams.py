"""Past streams: what is remembered of them, and that it does not grow."""

from __future__ import annotations

from sluicegate.wire.h2.past_streams import RESET_MAX, SKIPPED_MAX, PastStreams
from sluicegate.wire.h2.stream_states import StreamState


def states(past: PastStreams, *stream_ids: int, refusing: bool = False) -> list[StreamState]:
    return [past.state_of(one, refusing=refusing) for one in stream_ids]


def test_a_stream_is_yet_to_come_left_out_reset_or_closed() -> None:
    past = PastStreams()
    for stream_id in (1, 7):
        past.begin(stream_id)
    past.reset(1)
    assert states(past, 1, 3, 5, 7) == [
        StreamState.RESET,
        StreamState.SKIPPED,
        StreamState.SKIPPED,
        StreamState.CLOSED,
    ]
    assert states(past, 9, 2) == [StreamState.IDLE, StreamState.IDLE]
    assert states(past, 9, 2, refusing=True) == [StreamState.REFUSED, StreamState.IDLE]


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first() -> None:
    past = PastStreams()
    for number in range(RESET_MAX + SKIPPED_MAX + 1):
        past.begin(4 * number + 1)  # the stream before it is left out
        past.reset(4 * number + 1)
    last = past.last_id
    assert states(past, 1, last) == [StreamState.CLOSED, StreamState.RESET]
    assert states(past, 3, last - 2) == [StreamState.CLOSED, StreamState.SKIPPED]
