"""Releases: numbered, signed snapshots of the rules, and where they are stored.

`signatures` knows keys and envelopes, `documents` what a release and a rollout look like as bytes
and how they are named, `store` keeps them in a blob store, and `sweep` deletes what is no longer
needed. Nothing here decides which rules go live, and nothing puts any in force.
"""
