"""Snapshot: what a commit's rules files say, compiled once and carried to every node.

Nothing here knows of git, of signatures or of who is to run what.
"""
