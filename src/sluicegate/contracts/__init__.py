"""The promises: protocols and plain values that the layers above agree on.

A contract says what is passed and what is owed. It holds no behaviour beyond checking its own
fields, and it knows nothing but the kernels.
"""
