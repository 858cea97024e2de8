from __future__ import annotations

from sluicegate.resilience.client.heads import Heads


class Response:
    """Counts how often it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_end_closes_all_but_the_answer() -> None:
    heads: Heads[Response] = Heads()
    lost, answer = Response(), Response()
    heads.add(lost)
    heads.add(answer)
    heads.end(answer)
    assert (lost.closed, answer.closed) == (1, 0)


def test_response_after_the_end_is_closed() -> None:
    heads: Heads[Response] = Heads()
    late, answer = Response(), Response()
    heads.add(answer)
    heads.end(answer)
    heads.add(late)
    assert (late.closed, answer.closed) == (1, 0)


def test_call_without_answer_closes_all() -> None:
    heads: Heads[Response] = Heads()
    lost = Response()
    heads.add(lost)
    heads.end(None)
    heads.close()
    assert lost.closed == 1
