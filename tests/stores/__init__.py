"""Each store against the kernels, and against what only a store can get wrong."""
