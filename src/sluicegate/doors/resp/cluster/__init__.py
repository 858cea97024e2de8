"""The RESP commands of a cluster's nodes among themselves.

Words become values here and nothing is decided; who may report is the service's to say.
"""
