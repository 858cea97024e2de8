"""A gateway to a language model: requests and tokens a minute are kept at once, both or neither.

    python examples/llm_gateway.py
    STORE_URL=redis://127.0.0.1:6379 python examples/llm_gateway.py     # for all gateways together

What a call will use is only known when it has ended. So an estimate is reserved before it, and what
it did use is settled after it; a call that fails gives its estimate back.
"""

from __future__ import annotations

import os
import sys

from sluicegate import Claim, Limiter, Refused

limits = Limiter(
    rules={"requests": "60/minute", "tokens": "2000/minute"},
    store_url=os.environ.get("STORE_URL", "memory:"),
)


def ask(caller: str, prompt: str, tokens_max: int) -> str:
    """Ask the model, or raise `Refused` with the time to wait."""
    estimate = len(prompt) // 4 + tokens_max
    claims = Claim(caller, "requests"), Claim(caller, "tokens", estimate)
    with limits.reserve_all(*claims) as reservation:
        if not reservation:
            raise Refused(reservation.decision)
        answer, used = call_model(prompt, tokens_max)
        reservation.settle(1, used)  # of the second claim: the tokens
        return answer


def call_model(prompt: str, tokens_max: int) -> tuple[str, int]:
    """Stand in for a model: an answer of a quarter of what it may say, and its usage."""
    if "fail" in prompt:
        raise ConnectionError("the model does not answer")
    return f"{prompt.split(maxsplit=1)[0]}!", len(prompt) // 4 + tokens_max // 4


def main() -> None:
    """Show it."""

    def left(caller: str) -> int:
        return limits.peek(caller, 0, "tokens").remaining

    sys.stdout.write(f"ann: {ask('ann', 'Hello, how are you?', 400)} {left('ann')} tokens left\n")
    try:
        ask("ann", "fail, please", 400)
    except ConnectionError as error:
        sys.stdout.write(f"ann: {error}; {left('ann')} tokens left\n")
    try:
        for _ in range(20):
            ask("ann", "Write a long story", 800)
    except Refused as refused:
        wait_s = refused.decision.retry_after_s  # None if the estimate is above the whole limit
        again = "never" if wait_s is None else f"in {wait_s:.0f} s"
        sys.stdout.write(f"ann: refused, again {again}\n")
    sys.stdout.write(f"bob: {ask('bob', 'Hello from Bob', 400)} {left('bob')} tokens left\n")


if __name__ == "__main__":
    main()
