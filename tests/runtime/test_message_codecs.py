"""The server's and the clients' use of codecs: references, keys, residuals, and what is no reply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Exchange
from fedsim.bus import Header
from fedsim.errors import RunError
from fedsim.params import Form, RowTree, Tree, freeze
from fedsim.rng import Key
from fedsim.runtime.clients.held import Held
from fedsim.runtime.message_codecs import MessageCodecs, Unreadable, least_flops
from fedsim.scenario import build, load_scenario
from fedsim.wire import ModelBroadcast, ModelUpdate, pack, same
from fedsim.wire.codecs.choices import CodecConfig
from fedsim.wire.coded_messages import MessageCodec
from fedsim.wire.coded_messages import coded_kind as kind_of_coded

coded_kind: Any = kind_of_coded
TRAIN: Any = Exchange("train", reply=ModelUpdate)
CHAINS = {"models": {"chain": ["delta", "int8"], "least": "1 B"}}


def codecs(up: Any = CHAINS, down: Any = None) -> MessageCodecs:
    config = CodecConfig.model_validate({"up": up, "down": down or {}})
    return MessageCodecs(MessageCodec(config, "up", 10**6), MessageCodec(config, "down"), Key.root(0))


def header(client: int = 3, dispatch: int = 0) -> Header:
    return Header(client, -1, 1, "train", dispatch, dispatch)


def tree(value: float, *shape: int) -> Tree:
    return freeze({"w": np.full(shape or (4, 3), value, np.float32)})


def update(params: Tree) -> ModelUpdate:
    return ModelUpdate("mlp", params, {}, 1)


def test_a_reply_is_coded_as_the_difference_from_what_came() -> None:
    ours, sent = codecs(), ModelBroadcast("mlp", tree(5.0), {})
    coded = ours.encode_reply(update(tree(5.0)), sent, TRAIN, header(), {}).message
    assert not coded.params["+0"].any()  # type: ignore[attr-defined]
    assert same(ours.read_reply(coded, pack(sent), TRAIN), update(tree(5.0)))


def test_a_reference_is_found_by_its_form_however_it_is_made() -> None:
    row = RowTree(np.full(12, 5.0, np.float32), Form.of(tree(5.0)))
    for number in range(2000):  # forms that are remembered before are forgotten
        Form.of(tree(1.0, 1, number + 1))
    coded = codecs().encode_reply(update(tree(5.0)), ModelBroadcast("mlp", row, {}), TRAIN, header(), {})
    assert not coded.message.params["+0"].any()  # type: ignore[attr-defined]


def test_a_change_has_no_reference_and_needs_none() -> None:
    change: Any = Exchange("train", reply=ModelUpdate, changes=("params",))
    coded = codecs().encode_reply(update(tree(5.0)), None, change, header(), {}).message
    assert codecs().read_reply(coded, None, change).params["w"] == pytest.approx(5.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("sent", [None, ModelBroadcast("mlp", tree(5.0, 2, 2), {})])
def test_without_a_model_of_its_form_there_is_no_difference(sent: Any) -> None:
    with pytest.raises(RunError, match="no model of its form came down with exchange 'train'"):
        codecs().encode_reply(update(tree(5.0)), sent, TRAIN, header(), {})


def test_bytes_that_no_client_sends_are_no_reply() -> None:
    ours, sent = codecs(), ModelBroadcast("mlp", tree(5.0), {})
    coded: Any = ours.encode_reply(update(tree(5.0)), sent, TRAIN, header(), {}).message
    spoilt = {**coded.params, "+1": np.array([-1.0], np.float32)}
    for params in (spoilt, {**coded.params, "+2": np.zeros(1, np.int8)}, tree(1.0)):
        reply = ours.read_reply(coded_kind(ModelUpdate)("mlp", params, {}, 1), pack(sent), TRAIN)
        assert isinstance(reply, Unreadable)
        assert reply.why
    assert isinstance(ours.read_reply(coded, None, TRAIN), Unreadable)


def test_a_coded_message_of_another_kind_is_vetted_as_it_came() -> None:
    other = coded_kind(ModelBroadcast)("mlp", tree(1.0), {})
    assert codecs().read_reply(other, None, TRAIN) is other
    assert codecs().read_reply(update(tree(1.0)), None, TRAIN).params["w"][0, 0] == 1  # type: ignore[attr-defined]


def test_a_message_for_many_is_decoded_once() -> None:
    ours = codecs(up={}, down={"models": {"chain": ["int8"], "least": "1 B"}})
    packed = ours.pack_for_clients(ModelBroadcast("mlp", tree(5.0), {}), header())
    received = ours.read_from_server(packed.received)
    assert received is ours.read_from_server(packed.received)
    assert ours.read_from_server(None) is None
    assert ours.read_from_server(received) is received


def test_two_dispatches_draw_anew_in_both_directions() -> None:
    ours = codecs(down={"models": {"chain": ["int8"], "least": "1 B"}})
    values = freeze({"w": Key.root(1).numpy().standard_normal((20, 30)).astype(np.float32)})
    sent, zero = ModelBroadcast("mlp", values, {}), ModelBroadcast("mlp", tree(0.0, 20, 30), {})
    down = [ours.pack_for_clients(sent, header(dispatch=number)).message for number in range(2)]
    up = [ours.encode_reply(update(values), zero, TRAIN, header(dispatch=n), {}).message for n in range(2)]
    for one, two in (down, up):
        assert (one.params["+0"] != two.params["+0"]).any()  # type: ignore[attr-defined]


def test_residuals_settle_as_mirrored_fields_do() -> None:
    before, after = {"talk/params": tree(1.0)}, {"talk/params": tree(2.0)}
    held = Held(4, None, None, {}, after, before)
    assert held.settled_residuals(4) is after
    assert held.settled_residuals(3) is before
    assert not held.is_settled
    assert Held(4, None, None, {}, before, before).is_settled
    assert Held(4, None, None).is_settled
    assert not Held(4, 1, 2).is_settled


def test_what_encoding_takes_at_least() -> None:
    def parts(**changes: Any) -> Any:
        return build(load_scenario("quickstart", {"codec.up.models.chain": ["int8"], **changes}))

    assert least_flops(parts()) == 6 * (26_122 - 128 - 128 - 10)  # biases are smaller than 1 kB
    assert least_flops(build(load_scenario("quickstart"))) == 0
    assert least_flops(build(load_scenario("quickstart", algorithm="local"))) == 0
