import numpy as np

from fedsim.network import Links

LINKS = Links(np.array([1e6, 2e6]), np.array([5e6, 6e6]), np.array([0.01, 0.02]), 8e6, 9e6, 0.5)


def test_capacities_belong_to_the_party() -> None:
    assert [LINKS.egress_bps(address) for address in (-1, 0, 1)] == [8e6, 1e6, 2e6]
    assert [LINKS.ingress_bps(address) for address in (-1, 0, 1)] == [9e6, 5e6, 6e6]


def test_latency_is_the_sum_over_both_doors_whichever_way_it_goes() -> None:
    assert LINKS.between_s(-1, 1) == LINKS.between_s(1, -1) == 0.52
    assert LINKS.between_s(0, 1) == 0.03


def test_what_comes_out_are_plain_floats() -> None:
    # Durations end up in the trace, which takes no NumPy scalars.
    assert type(LINKS.egress_bps(0)) is type(LINKS.ingress_bps(1)) is type(LINKS.between_s(-1, 0)) is float
