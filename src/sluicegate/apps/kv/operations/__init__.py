"""Operations: what a dispatcher does for each kind of request, once it is allowed and valid.

Each asks the shield, enters the policies, reads or writes the tables, and ends its permit.
"""
