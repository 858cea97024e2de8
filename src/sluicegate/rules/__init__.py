"""The face for rulebooks: parse, compile, match, snapshot.

All rules of a version become one immutable, compiled value. Nothing here reads the network: how a
rulebook travels is an app's business.
"""
