"""Settings of the whole suite: property tests repeat themselves exactly."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fedsim",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fedsim")
