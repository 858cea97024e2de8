"""What the product is compared with, at its honest best; never a policy of the product itself.

Each file is one family, and describes each of its members.
"""
