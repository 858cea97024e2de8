"""The client side of the kit: calls that know when to stop. No driver is imported here.

A call passes these parts, outermost first; `calls.py` composes them:

    deadline    what is left of it, less `margin_us`; a call without one is given `timeout_us`
    retry       within its budget, and only what is safe to repeat
    throttle    holds back in proportion, by backend and class; it sees every attempt
    breaker     by backend and operation; an attempt that is throttled says nothing to it
    timeout     of one attempt, never beyond the deadline
    transport   a driver's own (`httpx.py`), or any function (`resilient.py`)
"""
