"""Shadow: capture traffic, and replay it against rules that are not in force yet.

Captures are redacted, replays run the production limiter on virtual time, and a gate judges what a
change of rules would have refused.
"""
