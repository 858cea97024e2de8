"""The image service: content-addressed; stores once, processes once, remembers failures.

addresses, origin          which addresses may be asked; downloads from strangers
records, maps, contents    the three maps in an engine, and the stored bytes
failures, pipeline         what is remembered and for how long; the flow
collect                    what nothing refers to any more, and the check of all that does
"""
