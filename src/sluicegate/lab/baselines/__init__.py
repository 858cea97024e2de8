"""What the product is compared with, at its honest best; never a policy of the product itself.

Each file is one family, and says what each of its members is and is not.
"""
