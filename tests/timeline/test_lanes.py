from fedsim.timeline.lanes import lanes


def test_what_overlaps_lies_side_by_side() -> None:
    assert lanes([(0, 10), (2, 5), (3, 4), (5, 9), (10, 11), (10, 10)]) == [0, 1, 2, 1, 0, 1]
    assert lanes([]) == []
