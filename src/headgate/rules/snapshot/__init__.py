"""Snapshot: what a commit's rules files say, compiled once and carried to every node."""
