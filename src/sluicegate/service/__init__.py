"""The host that every service fills in: settings, workers, listeners, lifecycle, status.

What two services would both write stands here once. Nothing here knows what any one service does.
"""
