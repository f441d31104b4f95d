"""Files out: run folders, summaries, tables and comparisons. Nothing here prints."""

from fedsim.report.plan import Plan

__all__ = ["Plan"]
