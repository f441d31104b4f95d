"""Random groups of clients: devices, links, and when they are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedsim.fuzz.dice import Dice, Table

DEVICES = ("low", "mid", "high", "laptop", "edge_gpu", "population", "mcu")
TABLES = ("benchmark_phones", "cellular_phones", "flash_phones")
SPEEDS = ("30 kFLOP/s", "300 kFLOP/s", "3 MFLOP/s", "1 GFLOP/s")
RATES = ("5 kbit/s", "20 kbit/s", "200 kbit/s", "5 Mbit/s", "1 Gbit/s")
WATTS = ("1 mW", "200 mW", "2 W", "20 W")
DELAYS = ("0 s", "1 ns", "30 ms", "700 ms", "5 s")
PERIODS = ("1 s", "2 s", "5 s", "20 s", "3 min")


def law(dice: Dice, values: Sequence[str]) -> Any:
    """Return a quantity: one value, or a law."""
    where = dice.whole(0, len(values) - 2)
    low, high = values[where], values[where + 1]
    return dice.pick(
        low,
        high,
        {"distribution": "lognormal", "median": high, "sigma": 0.5},
        {"distribution": "uniform", "low": low, "high": high},
        {"distribution": "normal", "mean": high, "deviation": high, "minimum": low},
        {"distribution": "choice", "values": [low, high], "weights": [1.0, 2.0]},
    )


def group(
    dice: Dice, number: int, count: int, labels: Sequence[str], network: str, files: dict[str, str]
) -> Table:
    """Return the group with a number of a fleet; add the files that it names to ``files``."""
    group: Table = {"name": f"group-{number}", "count": count, "device": dice.pick(*DEVICES)}
    if dice.chance(0.15):
        group["device"] = dice.pick(*TABLES)
    group |= {"speed": law(dice, SPEEDS), "latency": law(dice, DELAYS)}
    group |= dice.some(0.4, overhead=law(dice, DELAYS)) | dice.some(0.3, variation=0.5, efficiency=0.5)
    group |= dice.some(0.1, memory_bandwidth="100 kB/s", memory=dice.pick("4 kB", "100 kB", "1 GB"))
    group |= dice.some(0.3, drop_out=dice.pick("1 /h", "0.02 /s", "0.2 /s"))
    if (other := dice.child("load")).chance(0.2):
        loads = {"lognormal": {"sigma": 0.5}, "exponential": {}, "half_normal": {"mean": 1.5}}
        kind = other.pick(*loads)
        group["load"] = {"distribution": kind, **loads[kind]}
    for way in ("up", "down"):
        if network == "fluid" and dice.chance(0.3):
            names = [f"{way}-{number}-{index}.csv" for index in range(dice.whole(1, 2))]
            files |= {name: capacity(dice.child(name)) for name in names}
            group[f"{way}_trace"] = {"file": names} | dice.some(0.3, shift=False)
        elif dice.chance(0.8):
            group[way] = law(dice, RATES)
    if dice.chance(0.1):
        del group["device"]
        rows = [f"{dice.pick(0.001, 0.1)},2,{dice.pick(0.02, 1)},5,{dice.pick(0, 40)}" for _ in range(count)]
        files[f"devices-{number}.csv"] = _lines("speed_gflops,memory_gb,up_mbps,down_mbps,latency_ms", *rows)
        group["file"] = f"devices-{number}.csv"
    group["availability"] = _availability(dice.child("availability"), number, files)
    if len(labels) > 1:
        shares = {label: float(dice.whole(1, 3)) for label in labels}
        model: Table = dice.pick({"model": dice.pick(*labels)}, {"models": shares})
        group |= {"models_by_size": [{labels[0]: 1.0}, shares]} if count > 1 and dice.chance(0.2) else model
    return group


def battery(dice: Dice, number: int, files: dict[str, str]) -> Table:
    """Return what a group's devices draw, and perhaps their batteries, which soon run empty."""
    drawn: Table = {"compute_power": law(dice, WATTS), "transmit_power": law(dice, WATTS)}
    drawn |= {"receive_power": dice.pick(*WATTS), "tail_power": dice.pick(*WATTS), "radio_tail": "2 s"}
    drawn |= dice.some(0.7, idle_power=dice.pick(*WATTS), transmit_per_mbit_s=law(dice, WATTS))
    if dice.chance(0.3):
        return drawn
    its: Table = {"capacity": law(dice, ("1 J", "20 J", "500 J")), "floor": 0.0}
    its |= dice.some(0.6, level=dice.pick(0.5, {"distribution": "uniform", "low": 0.1, "high": 1.0}))
    if dice.chance(0.7):
        model = _availability(dice.child("plugged"), f"plugged-{number}", files)
        its |= {"charge_power": law(dice, WATTS), "plugged": dice.pick("available", "away", model)}
        its["floor"] = dice.pick(0.0, 0.2, 0.6)
    return drawn | {"battery": its}


def cells(dice: Dice, groups: Sequence[str], num_clients: int, files: dict[str, str]) -> list[Table]:
    """Return cells, each with clients; add the files that they name to ``files``."""
    some: list[Table] = [{"groups": [name]} for name in groups[: dice.whole(1, len(groups))]]
    if num_clients > 1 and dice.chance(0.5):
        some = [{"share": dice.pick(0.5, 0.75)}, {"share": 0.25}][
            : dice.whole(1, 2) if num_clients > 3 else 1
        ]
    for number, cell in enumerate(some):
        cell |= {"name": f"cell-{number}"} | dice.some(0.4, latency=dice.pick("1 ns", "30 ms"))
        for way in ("up", "down"):
            if dice.chance(0.2):
                name = f"cell-{number}-{way}.csv"
                files[name] = capacity(dice.child(name))
                cell[f"{way}_trace"] = name
            else:
                cell |= dice.some(0.7, **{way: dice.pick(*RATES)})
    return some


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def capacity(dice: Dice) -> str:
    """Return a bandwidth over time, with gaps, and a rate above zero at least once; a lap takes seconds."""
    at_ms, rows = 0, []
    for _ in range(dice.whole(1, 5)):
        rows.append(f"{at_ms},{dice.pick(0, 0, 8, 40, 1000)}")
        at_ms += dice.pick(1, 137, 1000)
    # The last step is as long as the one before it.
    rows += [f"{at_ms},0", f"{at_ms + dice.pick(1000, 2001)},{dice.pick(20, 200, 3333)}"]
    return _lines("at_ms,kbps", *rows)


def _availability(dice: Dice, number: int | str, files: dict[str, str]) -> str | Table:
    kind = dice.pick("always", "always", "always", "diurnal", "duty_cycle", "renewal", "trace")
    if kind == "always":
        return kind
    if kind == "trace":
        return {"name": kind, "params": _recording(dice, f"there-{number}.csv", files)}
    params: Table = {
        "diurnal": {"share": dice.pick(0.25, 0.6), "swing": 1.5, "keeps": dice.pick(*PERIODS)},
        "duty_cycle": {"period": dice.pick(*PERIODS), "on_share": dice.pick(0.3, 0.7, 1.0)},
        "renewal": {"on": dice.pick(*PERIODS), "off": dice.pick(*PERIODS), "sigma": dice.pick(0.0, 1.0)},
    }[kind]
    return {"name": kind, "params": params}


def _recording(dice: Dice, name: str, files: dict[str, str]) -> Table:
    states = ["".join(str(dice.whole(0, 1)) for _ in range(8)) for _ in range(dice.whole(1, 3))]
    match dice.pick("intervals", "states", "grid"):
        case "intervals":
            rows = [f"phone-{row},{dice.pick(0, 0.5)},{dice.whole(1, 9)}" for row in range(len(states))]
            files[name] = _lines("client,on_at_s,off_at_s", *rows)
            return {"file": name} | dice.some(0.5, repeat="12 s")
        case "states":
            rows = [f"phone-{row},2,{one}" for row, one in enumerate(states)]
            files[name] = _lines("client,step_s,states", *rows)
            return {"file": name}
        case _:
            files[name] = _lines(*(",".join(one) for one in states))
            return {"file": name, "step": dice.pick("1 s", "4 s")}
