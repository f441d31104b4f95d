from dataclasses import replace

from fedsim.bus import Header

DOWN = Header(sender=-1, receiver=3, round=2, exchange="train", dispatch=5, turn=4, merged=1)


def test_the_answer_goes_back_and_keeps_everything_else() -> None:
    assert DOWN.reply() == replace(DOWN, sender=3, receiver=-1)
    assert DOWN.reply().reply() == DOWN


def test_the_client_is_the_party_that_is_not_the_server() -> None:
    assert DOWN.client == DOWN.reply().client == 3
    assert Header(0, -1, 0, "", 0, 0).client == Header(-1, 0, 0, "", 0, 0).client == 0
