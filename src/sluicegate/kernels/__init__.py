"""The mathematics: one algorithm a file, each opening with an essay on its source and its bounds.

A kernel is told everything and reaches for nothing: instants and draws are arguments, state goes in
and comes out. No clock, no chance, no I/O, no logs, and no import from elsewhere in sluicegate.
"""
