"""The face for trying rules on captured traffic before they go live: capture, replay, analysis.

It runs the production rulebook on virtual time; it has no matching or limiting of its own.
"""
