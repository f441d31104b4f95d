"""fedsim from Python: what ``import fedsim`` offers (:mod:`fedsim.api.runs`, :mod:`fedsim.api.results`)."""
