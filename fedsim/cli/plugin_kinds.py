"""Packages of the kinds of plugins, by their names in commands."""

FOLDERS = {
    "aggregations": "fedsim.algorithms.aggregation",
    "algorithms": "fedsim.algorithms",
    "datasets": "fedsim.data",
    "models": "fedsim.models",
    "partitions": "fedsim.data.partitions",
    "augmentations": "fedsim.data.augmentations",
    "devices": "fedsim.fleet.devices",
    "availability": "fedsim.fleet.availability",
    "networks": "fedsim.network",
    "codecs": "fedsim.wire.codecs",
    "executors": "fedsim.engine.executors",
    "selectors": "fedsim.runtime.policies.selectors",
    "pacings": "fedsim.runtime.policies.pacing",
    "staleness": "fedsim.runtime.policies.staleness",
    "workloads": "fedsim.runtime.policies.workloads",
    "trackers": "fedsim.trackers",
    "schedules": "fedsim.engine.schedules",
}
"""The family of each kind: a package or a module."""
