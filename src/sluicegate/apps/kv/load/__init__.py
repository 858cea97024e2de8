"""`sluicegate kv load`: millions of rows uploaded in parts beside live traffic, and resumed after a
break where they stopped.
"""
