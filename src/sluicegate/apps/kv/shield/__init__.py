"""The shield in front of the engine: hot keys are found within milliseconds, read once for all who
ask, and answered from memory.
"""
