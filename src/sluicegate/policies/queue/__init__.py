"""The queue: who waits for a place at work, in which order, for how long, and who is refused
instead.
"""
