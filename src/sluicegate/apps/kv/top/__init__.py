"""`sluicegate kv top`: callers, refusals, stress and hot keys of one or more dispatchers, shown
live in a terminal.
"""
