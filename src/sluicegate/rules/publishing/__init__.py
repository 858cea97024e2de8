"""Publishing: the life of a proposal, and the only one who moves what is live.

`records.py` is what is kept, `ledger.py` where; `proposals.py` makes proposals and has them judged,
`branch.py` makes them of what people push; `publisher.py` decides what is live, and `outbox.py`
brings to the world what was decided; `canary.py` is the judgement over a canary, `upkeep.py`
acts on it; `admin.py` runs the operations, each for who may.
"""
