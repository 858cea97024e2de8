"""The face for account-wide limits without a central store: nodes, account masters, suppression.

Messages are values and the transport is handed in; no socket is opened here.
"""
