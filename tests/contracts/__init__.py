"""The contracts: the tables are whole, the values compare, travel and explain themselves."""
