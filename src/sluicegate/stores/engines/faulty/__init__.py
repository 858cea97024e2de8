"""An engine around any other that is slow, limited or failing as its URL says; for drills and
tests.
"""
