"""A whole population of phones on Wi-Fi, without classes: about 1.8 GFLOP/s, 2 to 8 GB.

Speed: the median of on-phone training on FLASH's mid-range phone (WWW 2021), FEMNIST CNN, 588 ms a batch; the
spread of 0.9 is that of the CPU scores of 333 phones in the AI-Benchmark list shipped with FLASH (0.93), of
which 1 in 20 is 7 times slower than the median. Memory: that of the classes low, mid and high, in FLASH's mix
of 53, 46 and 0.4 %; that it does not depend on the speed is a default without a source. Links: FLASH's Wi-Fi
profiles of 19 users, median 4.3 MB/s down and 3.3 MB/s up, spread between users 0.47 and 0.68. Variation:
that of the class mid. Latency: default without a source.
"""

from fedsim.fleet.device_class import DevicePlugin, quantities
from fedsim.fleet.distributions import choice, lognormal


class Population(DevicePlugin):
    """The class ``population``."""

    Config = quantities(
        speed=lognormal("1.8 GFLOP/s", 0.9),
        memory=choice({"2 GB": 53, "4 GB": 46, "8 GB": 0.4}),
        up=lognormal("3.3 MB/s", 0.68),
        down=lognormal("4.3 MB/s", 0.47),
        latency="20 ms",
        variation=0.04,
    )


PLUGIN = Population
