"""Past streams: what is still known of a peer's streams that are not open.

A frame may be late: on its way when we reset its stream, or refused it. So whether it is a fault
depends on how its stream ended, and that is remembered, within bounds: streams that are forgotten
count as closed. What state permits which frame is in `stream_states.py`.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from sluicegate.wire.h2.stream_states import StreamState

RESET_MAX: Final = 1_024  # streams that we have reset
SKIPPED_MAX: Final = 16  # gaps in the numbers of the peer's streams


@final
class PastStreams:
    """The streams of one connection, those that are open excepted."""

    __slots__ = ("_reset", "_skipped", "last_id")

    def __init__(self) -> None:
        self.last_id = 0  # the last that the peer has begun
        self._skipped: deque[tuple[int, int]] = deque(maxlen=SKIPPED_MAX)
        self._reset: dict[int, None] = {}

    def begin(self, stream_id: int) -> None:
        """Note that the peer begins this stream, and none of those that it left out."""
        if stream_id > self.last_id + 2:
            self._skipped.append((self.last_id, stream_id))
        self.last_id = stream_id

    def reset(self, stream_id: int) -> None:
        """Note that we have reset this stream."""
        if len(self._reset) >= RESET_MAX:
            del self._reset[next(iter(self._reset))]
        self._reset[stream_id] = None

    def state_of(self, stream_id: int, *, refusing: bool) -> StreamState:
        """Return the state of a stream that is not open; `refusing`: new ones are refused."""
        if stream_id & 1 == 0:
            return StreamState.IDLE  # ours to open, and we open none
        if stream_id > self.last_id:
            return StreamState.REFUSED if refusing else StreamState.IDLE
        if stream_id in self._reset:
            return StreamState.RESET
        for after, before in self._skipped:
            if after < stream_id < before:
                return StreamState.SKIPPED
        return StreamState.CLOSED
