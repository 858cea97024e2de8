"""Editions: versions of the rules as they leave their publisher: signed, numbered, on a shelf.

`signing` knows keys and envelopes, `documents` what an edition and orders look like as bytes,
`shelf` where everything lies in a blob store, and `sweeping` what of it is no longer needed.
Nothing here decides which rules go live, and nothing puts any in force.
"""
