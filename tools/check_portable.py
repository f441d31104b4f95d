"""Compute torch's operations in a portable process here and on emulated processors, and compare the bits.

QEMU's user mode emulates the processors (Debian: ``apt-get install qemu-user``). It computes approximations
such as ``rsqrtps`` exactly, so a kernel that depends on how a processor approximates shows itself::

    python tools/check_portable.py [--processors Nehalem Haswell] [--run]

``--run`` also compares the hashes of two rounds of the quickstart scenario, which takes minutes for each
processor. ``--names`` prints the operations, which are those of :mod:`fedsim.models.portable_operations`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from fedsim import portable_numerics
from fedsim.engine.optimisers import Adam, Clipped, Optimiser, Sgd
from fedsim.models.portable_operations import SeenOperations

DIGITS = 12
RUN = "-m fedsim run quickstart --algorithm {} --set engine.numerics=portable --set run.rounds=2"
ALGORITHMS = ("fedavg", "dsfl")

ELEMENTWISE = """
    abs ceil cos cosh erf exp expm1 floor log1p nan_to_num neg reciprocal round rsqrt sigmoid sign sin
    sinh square tanh trunc
"""
ACTIVATIONS = """
    celu elu gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 selu silu softplus
    softsign tanhshrink
"""
LAYERS: Mapping[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(70, 33), (20, 70)),
    "wide linear": (nn.Linear(3136, 512), (20, 3136)),
    "bilinear": (nn.Linear(5, 7, bias=False), (3, 4, 5)),
    "conv1d": (nn.Conv1d(3, 8, 5, padding=2), (4, 3, 50)),
    "conv2d": (nn.Conv2d(1, 32, 5, padding=2), (8, 1, 28, 28)),
    "narrow conv2d": (nn.Conv2d(6, 16, 5), (8, 6, 14, 14)),
    "pointwise conv2d": (nn.Conv2d(16, 32, 1, bias=False), (8, 16, 16, 16)),
    "strided conv2d": (nn.Conv2d(64, 64, 3, stride=2, padding=1), (4, 64, 16, 16)),
    "depthwise conv2d": (nn.Conv2d(8, 8, 3, groups=8, dilation=2), (4, 8, 16, 16)),
    "conv3d": (nn.Conv3d(2, 4, 3), (2, 2, 6, 6, 6)),
    "conv_transpose2d": (nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 6, 6)),
    "batch_norm": (nn.BatchNorm2d(16), (8, 16, 7, 7)),
    "batch_norm1d": (nn.BatchNorm1d(33), (20, 33)),
    "group_norm": (nn.GroupNorm(4, 16), (8, 16, 7, 7)),
    "layer_norm": (nn.LayerNorm(70), (20, 70)),
    "instance_norm": (nn.InstanceNorm2d(4, affine=True), (3, 4, 9, 9)),
    "rms_norm": (nn.RMSNorm(70), (20, 70)),
    "max_pool": (nn.MaxPool2d(2), (8, 4, 16, 16)),
    "max_pool1d": (nn.MaxPool1d(2), (8, 4, 16)),
    "avg_pool": (nn.AvgPool2d(3, 2, 1), (8, 4, 16, 16)),
    "avg_pool1d": (nn.AvgPool1d(2), (8, 4, 16)),
    "adaptive_avg_pool": (nn.AdaptiveAvgPool2d(3), (8, 4, 16, 16)),
    "global_avg_pool": (nn.AdaptiveAvgPool2d(1), (8, 4, 16, 16)),
    "prelu": (nn.PReLU(), (20, 70)),
    "softmax": (nn.Softmax(-1), (20, 70)),
    "log_softmax": (nn.LogSoftmax(-1), (20, 70)),
    "upsample": (nn.Upsample(scale_factor=2, mode="nearest"), (2, 3, 8, 8)),
    "pixel_shuffle": (nn.PixelShuffle(2), (2, 8, 5, 5)),
    "pad": (nn.ZeroPad2d(2), (2, 3, 8, 8)),
    "flatten": (nn.Sequential(nn.Flatten(), nn.Unflatten(1, (8, 8))), (5, 64)),
    "transformer": (nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), (3, 7, 16)),
}
RECURRENT = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "arithmetic": lambda x: (x + 2) * x / 3 - x.neg() + (1 - x) + (-x).add(x, alpha=0.5),
    "powers": lambda x: x.square() + x**2 + x**3 + x.abs() ** 1.7 + (1 + x.abs()) ** -0.5 + x.abs() ** x,
    "logarithms": lambda x: _logarithms(x) + x.logsumexp(1, keepdim=True),
    "comparisons": lambda x: torch.where(x > 0, x, -x) + x.clamp(-1, 1) + x.maximum(-x) + x.minimum(2 * x),
    "reductions": lambda x: x.sum() + x.sum(0) + x.mean(1, keepdim=True) + x.var(1, keepdim=True) + x.amax(),
    "deviation": lambda x: x.std(0) + torch.linalg.vector_norm(x, dim=0) + x.norm(),
    "order": lambda x: x.cumsum(1) + x.max(1, keepdim=True).values + x.topk(1, 1).values + x.sort(1).values,
    "products": lambda x: x @ x.t() @ x + torch.bmm(x[None], x.t()[None])[0] @ x + (x @ x[0])[:, None],
    "einsum": lambda x: torch.einsum("ij,kj,kl->il", x, x, x),
    "shapes": lambda x: torch.cat([x, x.flip(0)], 1)[:, ::2] + torch.stack(x.unbind())[:, : x.shape[1]],
    "parts": lambda x: torch.cat([*torch.split(x, 3, 1), *x.chunk(2, 1)], 1)[:, : x.shape[1]] + x.roll(1, 0),
    "masks": lambda x: x.masked_fill(x > 1, 0.0) + x.tril() + x.triu() + x.repeat(1, 2)[:, : x.shape[1]],
    "indices": lambda x: x[torch.zeros_like(_places(x))] + x.index_select(0, _places(x)),
    "gather": lambda x: x.gather(1, _places(x)[:, None].expand(-1, 1)) + x,
    "similarity": lambda x: F.softmax(x, 1) * F.log_softmax(x, 1) + F.glu(torch.cat([x, x], 1)),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None])[0],
    "losses": lambda x: (
        F.cross_entropy(x, _places(x)) + F.nll_loss(x, _places(x), reduction="none") + F.mse_loss(x, x.exp())
    ),
    "divergences": lambda x: (
        F.kl_div(x.log_softmax(1), x.flip(0).softmax(1), reduction="batchmean")
        + F.cosine_similarity(x, x.flip(0)).mean()
        + F.smooth_l1_loss(x, 2 * x)
    ),
    "labels": lambda x: x * (x.argmax(1) != _places(x))[:, None] * ~x.isnan() * ~x.isnan().any(),
    "in place": lambda x: (
        x.clamp_min(0.5) + x.detach().clone().abs_().neg_().clamp_min_(-1.0) + (x * 1).relu_()
    ),
    "lists": lambda x: _lists(x),
    "sgd": lambda x: _optimised(Sgd(0.1, momentum=0.9, weight_decay=1e-3), x),
    "clipped sgd": lambda x: _optimised(Clipped(Sgd(0.1), 0.5), x),
    "adam": lambda x: _optimised(Adam(0.01, weight_decay=1e-3), x),
    "draws": lambda x: x * _drawn(x.shape).to(x.device),
    "embedding": lambda x: F.embedding(_places(x), x) + F.one_hot(_places(x), x.shape[1]),
}


def _places(x: Tensor) -> Tensor:
    return torch.arange(len(x), device=x.device).flip(0)


def _logarithms(x: Tensor) -> Tensor:
    return torch.linspace(0.5, 2.0, 288_000, device=x.device).log().view(12, 12, -1).cumsum(2)[:, :, -1] * x


def _lists(x: Tensor) -> Tensor:
    rows, others = list(x.detach().unbind()), list(x.detach().flip(0).unbind())
    rows = list(torch._foreach_add(torch._foreach_mul(rows, 0.3), others))
    torch._foreach_lerp_(rows, others, 0.1)
    torch._foreach_addcmul_(rows, rows, others, 0.2)
    torch._foreach_addcdiv_(rows, rows, torch._foreach_add(torch._foreach_abs(others), 1.0), 0.7)
    torch._foreach_div_(rows, [3.0] * len(rows))
    return x * torch.stack(rows) * torch.stack(torch._foreach_norm(others))


def _optimised(optimiser: Optimiser, x: Tensor) -> Tensor:
    params = [x.detach().clone()]
    state = optimiser.start(params)
    for _ in range(3):
        optimiser.update(params, [params[0].exp()], state)
    return x * params[0]


def _drawn(shape: Sequence[int]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    ones = torch.ones(shape)
    for draw in (ones.normal_, partial(ones.uniform_, 0.5, 1.0), ones.bernoulli_):
        ones = ones * draw(generator=generator).clone()
    return ones + torch.randn(shape, generator=generator) + torch.randperm(shape[-1], generator=generator)


def cases() -> Iterator[tuple[str, Callable[..., Tensor], list[Tensor]]]:
    """Yield what is computed: a name, a function, and its operands, whose gradients are compared, too."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int, scale: float = 1.0) -> Tensor:
        # torch.randn has other bits where more than 15 values are drawn at once with other instructions.
        return scale * torch.from_numpy(np.random.default_rng(shape).standard_normal(shape, np.float32))

    for name in ELEMENTWISE.split():
        x = drawn(300_000)
        yield name, getattr(torch, name), [3 * x.abs() + 0.01 if name == "rsqrt" else x]
    for name in ACTIVATIONS.split():
        yield name, getattr(F, name), [drawn(300_000, scale=3)]
    for name, (module, shape) in LAYERS.items():
        yield name, *_of_module(module.train(), drawn(*shape), generator)
    for name, kind in RECURRENT.items():
        module = kind(8, 20, num_layers=2, batch_first=True)
        apply, operands = _of_module(module, drawn(5, 9, 8), generator)
        yield name, (lambda *some, apply=apply: apply(*some)[0]), operands
    for name, function in FUNCTIONS.items():
        yield name, function, [drawn(12, 12)]


def _of_module(
    module: nn.Module, x: Tensor, generator: torch.Generator
) -> tuple[Callable[..., Tensor], list[Tensor]]:
    names = [name for name, _ in module.named_parameters()]
    values = [torch.rand(p.shape, generator=generator) / 2 - 0.2 for _, p in module.named_parameters()]

    def apply(x: Tensor, *values: Tensor) -> Tensor:
        its = module.to(x.device)
        outputs: Tensor = torch.func.functional_call(its, dict(zip(names, values, strict=True)), (x,))
        return outputs

    return apply, [x, *values]


def digests() -> dict[str, str]:
    """Return a digest of each case's outputs and gradients, in this process."""
    torch.set_num_threads(1)
    return {name: _digest(_outputs(function, operands)) for name, function, operands in cases()}


def operations() -> set[str]:
    """Return the names of the operations in all cases, on the CPU and on the meta device."""
    seen = SeenOperations()
    for name, function, operands in cases():
        for device in ("cpu",) if name == "adam" else ("cpu", "meta"):
            with seen:
                _outputs(function, [operand.to(device) for operand in operands])
    return seen.names


def _outputs(function: Callable[..., Tensor], operands: list[Tensor]) -> list[Tensor]:
    own = [operand.detach().clone().requires_grad_() for operand in operands]
    outputs = function(*own)
    weights = torch.linspace(0.5, 1.5, outputs.numel(), device=outputs.device)
    (outputs * weights.view_as(outputs)).sum().backward()  # type: ignore[no-untyped-call]
    return [outputs, *(operand.grad for operand in own if operand.grad is not None)]


def _digest(tensors: list[Tensor]) -> str:
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.detach().contiguous().numpy().tobytes())
    return sha.hexdigest()[:DIGITS]


def compare(processor: str, *, with_run: bool) -> list[str]:
    """Compute on an emulated processor; return what differs from this one."""
    emulator = ["qemu-x86_64", "-cpu", processor]
    command = [sys.executable, str(Path(__file__).resolve()), "--here"]
    here, there = (json.loads(_output([*prefix, *command])) for prefix in ([], emulator))
    lines = [f"{name}: {here[name]} here, {there[name]} there" for name in here if here[name] != there[name]]
    for algorithm in ALGORITHMS if with_run else ():
        ran = [_run(prefix, algorithm) for prefix in ([], emulator)]
        lines += [f"{algorithm}: {ran[0]} here, {ran[1]} there"] if ran[0] != ran[1] else []
    return lines


def _run(prefix: list[str], algorithm: str) -> str:
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        _output([*prefix, sys.executable, *RUN.format(algorithm).split(), "--out", str(out)])
        summary = json.loads((out / "summary.json").read_text())
    return f"trace {summary['trace_hash']}, models {summary['model_hash']}"


def _output(command: list[str]) -> str:
    environment = portable_numerics.variables()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout


def main() -> None:
    """Compare this processor with emulated ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--processors", nargs="+", default=["Nehalem", "Haswell"], metavar="NAME")
    parser.add_argument("--run", action="store_true", help="compare two rounds of the quickstart, too")
    parser.add_argument("--names", action="store_true", help="print the names of the operations")
    parser.add_argument("--here", action="store_true", help="print the digests of this process")
    arguments = parser.parse_args()
    if arguments.names or arguments.here:
        if not portable_numerics.is_requested():
            portable_numerics.restart(sys.orig_argv)
        portable_numerics.require()
    if arguments.names:
        print(" ".join(sorted(operations())))
    elif arguments.here:
        print(json.dumps(digests()))
    else:
        failed = False
        for processor in arguments.processors:
            lines = compare(processor, with_run=arguments.run)
            failed |= bool(lines)
            print("\n  ".join([f"{processor}: {len(lines)} differ", *lines]))
        sys.exit(failed)


if __name__ == "__main__":
    main()
