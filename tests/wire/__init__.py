"""The codecs are fed bytes split at every place, and held against a kept library."""
