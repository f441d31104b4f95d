"""The science: one file, one algorithm. :mod:`fedsim.algorithms.base` holds the contract."""
