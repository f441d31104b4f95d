"""fedsim: what does federated learning cost on this fleet, to reach what accuracy, and for whom?"""

__version__ = "0.1.0"
