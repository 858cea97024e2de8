"""The client side of the kit: calls that know when to stop. No driver is imported here.

A call passes these parts, outermost first; `calls.py` composes them:

    deadline    what is left of it, less `margin_us`; a call without one is given `timeout_us`
    retry       within its budget, and only what is safe to repeat
    host        the less loaded of two, where there is a group; not where an attempt has been
    throttle    holds back in proportion, by host and class; it sees every attempt
    breaker     by host and operation; where it is open another host is chosen
    timeout     of one attempt, never beyond the deadline
    transport   a driver's own (`httpx.py`), or any function (`resilient.py`)
"""
