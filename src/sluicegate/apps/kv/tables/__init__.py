"""Tables: what a dispatcher makes of an engine's spaces. Rows that expire, writes with a condition,
and generations of a table, so that millions of uploaded rows become visible at once."""
