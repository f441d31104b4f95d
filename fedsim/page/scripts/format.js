// Numbers for people, as fedsim/report/number_format.py writes them: three digits and a unit.

const NOTHING = "-";

const TIMES = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
];
const SIZES = [
  [1e15, "PB"],
  [1e12, "TB"],
  [1e9, "GB"],
  [1e6, "MB"],
  [1e3, "kB"],
  [1, "B"],
];
const ENERGIES = [
  [1e6, "MJ"],
  [1e3, "kJ"],
  [1, "J"],
  [1e-3, "mJ"],
];
const COUNTS = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** Returns a value of an axis with its unit; "-" where there is none. */
function format(unit, value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOTHING;
  switch (unit) {
    case "s":
      return duration(value);
    case "B":
      return scaled(value, SIZES);
    case "B/s":
      return `${scaled(value, SIZES)}/s`;
    case "J":
      return scaled(value, ENERGIES, "J");
    case "share":
      return `${(100 * value).toFixed(1)} %`;
    default:
      return count(value);
  }
}

/** Returns a text in which no line ends between a number and its unit. */
function unbroken(text) {
  return text.replace(/(\d) (?=(?:%|[kMGT]?B|[mkM]?J|d|h|min|s|ms|µs)(?![\w]))/g, "$1\u00a0");
}

/** Returns a number with so many significant digits, without zeros at its end. */
function digits(value, most = 3) {
  return String(Number(value.toPrecision(most)));
}

/** Returns a time in at most two units; below a minute in one. */
function duration(seconds) {
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 59.95) return scaled(seconds, TIMES.slice(3), "s");
  const whole = Math.round(seconds);
  const at = TIMES.findIndex(([length]) => whole >= length);
  const [length, unit] = TIMES[at];
  const [smaller, part] = TIMES[at + 1];
  const rest = Math.floor((whole % length) / smaller);
  return `${Math.floor(whole / length)} ${unit}` + (rest && smaller >= 1 ? ` ${rest} ${part}` : "");
}

/** Returns a number in the largest unit that it reaches. */
function scaled(value, units, none = units[units.length - 1][1]) {
  if (value === 0) return `0 ${none}`;
  const rounded = Math.abs(Number(value.toPrecision(3)));
  const [size, name] = units.find(([size]) => rounded >= size) ?? units[units.length - 1];
  return `${digits(value / size)} ${name}`;
}

function count(value) {
  if (Number.isInteger(value) && Math.abs(value) < 10000) return String(value);
  return Math.abs(value) < 10000 ? digits(value) : scaled(value, COUNTS);
}
