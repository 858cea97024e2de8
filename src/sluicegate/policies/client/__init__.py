"""Client: what a caller decides about its calls to a backend.

Whether to call at all (`breaker.py`, `client_throttle.py`), which host (`balance.py`,
`outlier.py`), whether to call again (`retry.py`, `hedge.py`, `retry_budget.py`), and what to return
instead (`fallback.py`).
"""
