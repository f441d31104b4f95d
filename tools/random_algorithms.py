"""Algorithms of random scenarios, and their parameters; a part of :mod:`random_scenarios`."""

from __future__ import annotations

from collections.abc import Sequence

from dice import Dice, Table

MIXED = (
    *("local", "fml"),
    *("fedmd", "fedme", "dsfl", "feddf", "pfeddf", "ktpfl", "sim_pfd", "topk_pfd", "perfed_ckt", "fedgems"),
)
"""Algorithms for mixed architectures; so are Fed-ET, FedGKT and FedPer, where parts are of one shape."""
WITH_PUBLIC = (*MIXED[2:], "fedet")
WEIGHTS = (
    *("fedavg", "fedavg_ft", "fedprox", "ktpfl_w", "apfl", "ditto", "fedper", "l2sgd", "mapper"),
    *("fedadagrad", "fedadam", "fedavgm", "fedyogi", "moon", "perfedavg", "pfedme", "scaffold"),
    *("fedamp", "fedfomo", "hypcluster", "ifca", "pfedhn", "fedasync", "fedbuff"),
)
"""Algorithms that exchange weights and take any task."""
WITHOUT_CLASSES = (*WEIGHTS, "local", "centralized", "perfed_ckt", "fedmd")
"""Those that take a regression."""
ALGORITHMS = (*MIXED, *WEIGHTS, "fedet", "fedgkt", "centralized", "persfl", "persfl_gd")
BY_STEPS = ("fedasync", "fedbuff")
ASYNCHRONOUS = (
    *BY_STEPS,
    *("local", "fedavg", "fedavg_ft", "fedprox", "moon", "perfedavg", "pfedme", "ditto", "fedper", "apfl"),
    *("fml", "mapper", "hypcluster", "ifca", "persfl", "persfl_gd"),
)
"""Algorithms that merge stale replies; some discount steps, `local` merges nothing, the others take means."""


def params_of(dice: Dice, algorithm: str, labels: Sequence[str]) -> Table:
    """Return an algorithm's parameters; ``labels`` are the architectures."""
    rate, batch = dice.pick(0.01, 0.1), dice.whole(3, 9)
    weighting = dice.some(0.5, weighting="uniform")
    server = {"server_steps": dice.whole(1, 3), "server_batch_size": batch, "server_lr": rate}
    tuning = dice.some(0.5, finetune_epochs=dice.whole(0, 1))
    pairing = {"distill_epochs": 1, "distill_batch_size": batch} | dice.some(
        0.4,
        order="distill_first",
        temperature=2.0,
        distill_lr=rate,
        public_per_round=dice.whole(1, 6),
        replacement=True,
        ramp_epochs=True,
        theta_sq=True,
    )
    coefficients = dice.some(0.3, c_step="explicit", c_weighting="data", c_norm="softmax5")
    ensemble = dice.some(0.4, ensemble=dice.pick("probs", "losses"), distill_idle=False)
    grid = {"lambdas": [0.0, 0.5], "temperatures": [2.0], "distill_epochs": 1}
    match algorithm:
        case "fedavg":
            return weighting
        case "fedasync":
            return {"alpha": dice.pick(0.0, 0.6, 1.0)} | dice.some(0.5, rho=rate)
        case "fedbuff":
            return dice.some(0.5, server_lr=0.5, momentum=0.5)
        case "fedprox":
            return weighting | {"mu": rate} | dice.some(0.3, gamma=0.5)
        case "apfl":
            return {"alpha": dice.pick(0.0, 0.5, 1.0)} | dice.some(
                0.4, weighting="samples", adapt="step", alpha_lr=rate, alpha_decay=0.02, mix_with="server"
            )
        case "ditto":
            return weighting | dice.some(0.5, lam=rate, personal_epochs=1)
        case "fedper":
            return weighting | dice.some(0.5, personal_layers=dice.whole(0, 2))
        case "fml":
            return {"alpha": dice.pick(0.0, 0.5, 1.0)} | dice.some(
                0.4, weighting="samples", beta=0.1, clip=1.0, same_start=False
            )
        case "l2sgd":
            return {"probability": dice.pick(0.3, 0.9)} | dice.some(0.5, pull=dice.pick(0.0, 1.0))
        case "mapper":
            mix = dice.child("mix").some(0.3, mix="outputs")
            return weighting | dice.some(0.5, lambdas=[0.0, 0.5], global_steps=dice.whole(0, 2)) | mix
        case "fedavg_ft":
            return weighting | tuning
        case "fedavgm":
            return weighting | dice.some(0.5, momentum=0.5, nesterov=True)
        case "fedadagrad" | "fedadam" | "fedyogi":
            return weighting | {"server_lr": rate} | dice.some(0.5, beta1=0.5, epsilon=0.1)
        case "moon":
            return weighting | dice.some(0.5, mu=rate, buffer=2)
        case "perfedavg":
            return weighting | dice.some(0.5, variant="hf", beta=rate, adapt_steps=dice.whole(0, 2))
        case "pfedme":
            return weighting | {"inner_steps": 2} | dice.some(0.3, all_train=True, beta=0.5)
        case "scaffold":
            return dice.some(0.4, option="I", server_lr=0.5)
        case "fedamp":
            attention: Table = dice.pick(
                {}, {"alpha": 5.0, "sigma": 2.0}, {"alpha": 5.0, "lam": 0.1, "heur": True}
            )
            return attention | dice.some(0.5, lam=rate, start="mixture")
        case "fedfomo":
            return {"offers": dice.whole(0, 3)} | dice.some(0.3, epsilon=1.0, epsilon_decay=0.5)
        case "hypcluster":
            start = dice.some(0.4, choose_on="val", start="kmeans")
            return weighting | {"clusters": dice.whole(1, 3)} | start | tuning
        case "ifca":
            return {"clusters": dice.whole(1, 3)} | dice.pick(
                {}, {"option": "grad_avg", "server_lr": rate}, {"shared_base": True}
            )
        case "pfedhn":
            return {"hidden": dice.whole(1, 4), "embedding": 2} | dice.some(
                0.4, hidden_layers=0, updates="each", server_lr=rate
            )
        case "fedgkt":
            return {"cut": -1, "server_epochs": 2} | dice.some(
                0.3, alpha=0.5, server_kd=False, server_lr=rate
            )
        case "fedgems":
            return dice.some(0.5, epsilon=0.2, public_epochs=2, server_lr=rate)
        case "centralized":
            return dice.some(0.5, upload=True, finetune=True)
        case "local":
            return dice.some(0.5, follow_selection=True)
        case "dsfl":
            return {"kd_epochs": 1} | dice.some(
                0.4, aggregation="sa", public_per_round=dice.whole(1, 6), kd_lr=rate
            )
        case "feddf":
            return weighting | server | ensemble
        case "pfeddf":
            return weighting | server | ensemble | tuning
        case "fedet":
            return server | dice.some(0.4, lam=0.5, div_normalise=True)
        case "fedmd":
            drawn = dice.some(
                0.4,
                public_per_round=dice.whole(1, 6),
                digest=dice.pick("mse", "kl"),
                digest_lr=rate,
                order="train_first",
            )
            return {"pretrain_epochs": dice.whole(0, 1), "digest_batch_size": batch} | drawn
        case "fedme":
            drawn = dice.some(0.3, mt=False, dml=False, mc=False, tune_on="train", literal_upload=True)
            return (
                {"clusters": [1, 2], "raise_at": [0.5]}
                | tuning
                | drawn
                | dice.some(0.3, candidates=list(labels))
            )
        case "ktpfl":
            return pairing | coefficients | {"c_batch_size": batch}
        case "ktpfl_w":
            mixing: Table = dice.pick(
                {"c_steps": 2}, {"mixing": "similarity"}, {"mixing": "topk", "neighbours": dice.whole(1, 3)}
            )
            return mixing | (coefficients if "c_steps" in mixing else {})
        case "sim_pfd":
            return pairing | dice.some(0.5, norm="sum")
        case "topk_pfd":
            return pairing | dice.pick({"neighbours": dice.whole(1, 3)}, {"half": True})
        case "perfed_ckt":
            return {"clusters": dice.whole(1, 3), "public_batch_size": batch} | dice.some(0.3, public_size=3)
        case "persfl":
            return (
                weighting
                | grid
                | dice.some(0.4, teacher="final", kl_direction="reverse", kl_reduction="mean")
            )
        case "persfl_gd":
            return weighting | grid | dice.some(0.4, teacher="final")
    raise ValueError(f"no parameters are drawn for {algorithm!r}")
