// Axes: how far they reach, where their ticks are, and how values become places.

const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const LOG_SECONDS = [
  [1, 10, 60, 600, 3600, 36000, 86400, 864000, 8640000],
  [
    1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 18000, 43200, 86400, 172800, 432000, 864000,
    2592000,
  ],
];

const NEAR_ZERO = 0.15; // Of the values' range, as in fedsim/figures/ticks.py.

/**
 * Returns how far an axis reaches that shows values from least to most.
 * @param {{unit: string, scale: string}} axis
 * @param {boolean} hasMargin Whether there is some room beyond the ends, from zero on if that is near.
 */
function reach(axis, least, most, hasMargin = true) {
  if (!(least <= most)) return axis.scale === "log" ? [1, 10] : [0, 1];
  if (axis.scale === "log") {
    const room = least === most ? 2 : (most / least) ** 0.04;
    return [least / room, most * room];
  }
  if (!hasMargin) return least === most ? [least - 0.5, most + 0.5] : [least, most];
  const room = (most - least) * 0.05 || Math.abs(most) * 0.1 || 0.5;
  return [
    least >= 0 && least <= (most - least) * NEAR_ZERO ? 0 : least - room,
    axis.unit === "share" && most <= 1 ? Math.min(most + room, 1.02) : most + room,
  ];
}

/** Returns the values at which an axis has ticks, at most about so many; none where it has no ends yet. */
function ticks(axis, min, max, most) {
  if (!Number.isFinite(min) || !Number.isFinite(max) || !(min < max)) return [];
  if (axis.scale === "log" && min <= 0) return [];
  return axis.scale === "log" ? logTicks(axis, min, max, most) : linearTicks(axis, min, max, most);
}

function linearTicks(axis, min, max, most) {
  const step = stepOf(axis.unit, (max - min) / Math.max(1, most));
  const found = [];
  for (let at = Math.ceil(min / step - 1e-9); at * step <= max + step * 1e-9; at++) found.push(at * step);
  return found;
}

function stepOf(unit, least) {
  if (unit === "s" && least > 0.5 && least <= 86400) return SECONDS.find((step) => step >= least * 0.999);
  if (unit === "s" && least > 86400) return 86400 * stepOf("1", least / 86400);
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((times) => times * power >= least * 0.999) ?? 10);
}

function logTicks(axis, min, max, most) {
  const within = (all) => all.filter((value) => value >= min * 0.999 && value <= max * 1.001);
  const decades = (times) => {
    const found = [];
    for (let power = Math.floor(Math.log10(min)); power <= Math.ceil(Math.log10(max)); power++) {
      found.push(...times.map((factor) => Number(`${factor}e${power}`)));
    }
    return found;
  };
  const isTime = axis.unit === "s" && min >= 0.5;
  const levels = isTime ? LOG_SECONDS : [decades([1]), decades([1, 3]), decades([1, 2, 5])];
  const found = levels.map(within);
  const fine = found.filter((values) => values.length <= most && values.length >= 2).pop();
  if (fine) return fine;
  if (found[0].length > most) return found[0].filter((_, at) => at % Math.ceil(found[0].length / most) === 0);
  return linearTicks(axis, min, max, Math.min(most, 4)).filter((value) => value > 0);
}

/** Returns the words at the ticks of an axis; all in one unit, unless their sizes differ much. */
function tickWords(axis, values) {
  if (axis.scale === "log") return values.map((value) => format(axis.unit, value).replace(".0 %", " %"));
  const largest = Math.max(...values.map(Math.abs), 0);
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) : largest;
  const inOne = (units, end = "") => {
    // Half an hour is said as such, and a quarter of one in minutes.
    const isRound = (size) => units !== TIMES || size < 60 || step / size >= 0.45;
    const [size, name] =
      units.find(([size]) => largest / size >= 1.5 && isRound(size)) ?? units[units.length - 1];
    return values.map((value) => `${digits(value / size, 4)} ${name}${end}`.trim());
  };
  switch (axis.unit) {
    case "s":
      return inOne(TIMES);
    case "B":
      return inOne(SIZES);
    case "B/s":
      return inOne(SIZES, "/s");
    case "J":
      return inOne(ENERGIES);
    case "share":
      return values.map((value) => `${digits(100 * value, 4)} %`);
    default:
      return inOne([...(largest >= 10000 ? COUNTS : []), [1, ""]]);
  }
}

/** Returns what tells the place of a value on an axis, between two places. */
function placing(axis, [min, max], from, to) {
  const ease = axis.scale === "log" ? Math.log : (value) => value;
  const low = ease(min);
  const span = ease(max) - low || 1;
  return (value) => from + ((ease(value) - low) / span) * (to - from);
}

/** Returns the least and the most of the values that an axis can show. */
function extent(axis, ...arrays) {
  let least = Infinity;
  let most = -Infinity;
  for (const values of arrays) {
    for (const value of values) {
      if (value === null || value === undefined || (axis.scale === "log" && value <= 0)) continue;
      if (value < least) least = value;
      if (value > most) most = value;
    }
  }
  return [least, most];
}

/** Returns the words of an axis, with what says that it is logarithmic. */
function axisWords(axis) {
  return axis.scale === "log" ? `${axis.label} (log)` : axis.label;
}
