"""The RESP commands of the key-value store: Redis's own, and ours, which begin with `SG.`.

A command reads its words, calls the dispatcher, and writes the reply; it decides nothing.
"""
