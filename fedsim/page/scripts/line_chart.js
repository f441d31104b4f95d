// Lines, drawn by uPlot: bands, marked values, logarithmic axes, and one reading for all lines.

/**
 * @typedef {Object} LineChart
 * @property {{label: string, unit: string, scale: string}} x
 * @property {{label: string, unit: string, scale: string}} y
 * @property {{label: string, x: number[], y: number[], low?: number[], high?: number[], legend?: string}[]} lines
 * @property {{value: number, label: string}[]} targets
 * @property {boolean} stepped
 */

/**
 * Draws lines. Charts over the same horizontal axis show their readings together.
 * @param {LineChart} chart
 * @param {Frame} frame See figure.js.
 */
function lineChart(chart, frame) {
  const above = element("div", { class: "axis above", "aria-hidden": "true" });
  const host = element("div", { class: "lines" });
  const below = element("div", { class: "axis below", "aria-hidden": "true" });
  frame.plot.append(above, host, below);
  let plot = null;
  let names = null;
  let at = null;

  function build() {
    plot?.destroy();
    plot = null;
    above.textContent = axisWords(chart.y);
    below.textContent = axisWords(chart.x);
    if (host.clientWidth)
      plot = new uPlot(options(chart, frame.hidden, host.clientWidth, read), aligned(chart), host);
  }

  const saidOf = (line) => line.legend ?? format(chart.y.unit, lastOf(line.y));

  /** Says what the lines are where the cursor is; what the legend says of each where it is nowhere. */
  function read(u) {
    const x = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null;
    const index = x === null ? null : u.cursor.idx;
    const exact = index === null || index === undefined ? null : u.data[0][index];
    const values = chart.lines.map((line) =>
      exact === null ? saidOf(line) : format(chart.y.unit, valueAt(line, exact)),
    );
    names?.values(values);
    const where = exact === null ? "" : `${chart.x.label} ${format(chart.x.unit, exact)}`;
    const shown = chart.lines
      .map((line, number) => `${line.label} ${values[number]}`)
      .filter((_, number) => !frame.hidden.has(chart.lines[number].label));
    frame.tell(where, where && `${where}: ${shown.join(", ")}`);
  }

  function relabel() {
    const entries = chart.lines.map((line) => ({
      label: line.label,
      swatch: lineSwatch(line.number, line.colour),
    }));
    names = legend(entries, frame.hidden, build);
    names.values(chart.lines.map(saidOf));
    frame.legend.replaceChildren(names.element);
  }

  function moveTo(index) {
    const xs = plot.data[0];
    at = Math.min(Math.max(index, 0), xs.length - 1);
    plot.setCursor({ left: plot.valToPos(xs[at], "x"), top: plot.over.clientHeight / 2 });
  }

  relabel();
  build();
  const ends = [onTheme(build), onWidth(host, build)];
  return {
    update(now) {
      const same =
        now.lines.map((line) => line.label).join("\n") === chart.lines.map((line) => line.label).join("\n");
      chart = now;
      if (!same) relabel();
      build();
      names.values(chart.lines.map(saidOf));
    },
    move(across, down, toEnd) {
      const last = (plot?.data[0].length ?? 0) - 1;
      if (last < 0) return;
      if (toEnd || at === null) moveTo(across > 0 === Boolean(toEnd) ? last : 0);
      else moveTo(at + across);
    },
    leave() {
      at = null;
      plot?.setCursor({ left: -10, top: -10 });
    },
    redraw: build,
    table: () => lineTable(chart),
    close() {
      ends.forEach((end) => end());
      plot?.destroy();
    },
  };
}

/** Returns the columns that uPlot wants: all places across, then for each line its values, or also its band. */
function aligned(chart) {
  const can = (axis, value) => value !== null && !(axis.scale === "log" && value <= 0);
  const places = [...new Set(chart.lines.flatMap((line) => line.x.filter((x) => can(chart.x, x))))].sort(
    (a, b) => a - b,
  );
  const index = new Map(places.map((x, at) => [x, at]));
  const column = (line, values) => {
    // Not there: the line goes on to its next value. Null: it has a gap.
    const cells = new Array(places.length).fill(undefined);
    line.x.forEach((x, at) => {
      if (index.has(x)) cells[index.get(x)] = can(chart.y, values[at]) ? values[at] : null;
    });
    return cells;
  };
  const bands = chart.lines.filter((line) => line.low);
  return [
    places,
    ...chart.lines.map((line) => column(line, line.y)),
    ...bands.flatMap((line) => [column(line, line.high), column(line, line.low)]),
  ];
}

function options(chart, hidden, width, read) {
  const paths = chart.stepped ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
  const shown = (line) => !hidden.has(line.label);
  const series = chart.lines.map((line) => ({
    label: line.label,
    scale: "y",
    show: shown(line),
    paths,
    stroke: colourAt(line.colour),
    width: 1.75,
    dash: dashAt(line.number),
    points: { show: line.y.length < 2, size: 7 },
  }));
  const edges = [];
  const bands = [];
  chart.lines.forEach((line) => {
    if (!line.low) return;
    const first = 1 + chart.lines.length + edges.length;
    const edge = {
      scale: "y",
      show: shown(line),
      paths,
      width: 0,
      stroke: "transparent",
      points: { show: false },
    };
    edges.push(edge, { ...edge });
    bands.push({ series: [first, first + 1], fill: colourAt(line.colour, 0.14) });
  });
  const look = { font: FONT, stroke: colour("muted"), filter: (u, places) => places };
  return {
    width,
    height: Math.round(Math.min(Math.max(width * 0.55, 220), 320)),
    padding: [10, 28, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      points: { size: 7 },
      drag: { x: false, y: false },
      sync: {
        key: [chart.x.label, chart.x.unit, chart.x.scale].join("|"),
        setSeries: false,
        scales: ["x", null],
      },
    },
    scales: {
      x: {
        time: false,
        distr: chart.x.scale === "log" ? 3 : 1,
        range: (u, least, most) => reach(chart.x, least, most, false),
      },
      y: {
        distr: chart.y.scale === "log" ? 3 : 1,
        range: (u, least, most) => reach(chart.y, ...withTargets(chart, least, most)),
      },
    },
    axes: [
      {
        ...look,
        scale: "x",
        size: 30,
        gap: 6,
        grid: { show: false },
        ticks: { stroke: colour("axis"), size: 4, width: 1 },
        border: { show: true, stroke: colour("axis"), width: 1 },
        splits: (u, at, min, max) =>
          ticks(chart.x, min, max, Math.max(2, u.over.clientWidth / 84 || width / 100)),
        values: (u, places) => tickWords(chart.x, places),
      },
      {
        ...look,
        scale: "y",
        gap: 8,
        grid: { stroke: colour("rule"), width: 1 },
        ticks: { show: false },
        size: (u, words) => Math.ceil(Math.max(...(words ?? []).map(widthOf), 10)) + 12,
        splits: (u, at, min, max) => ticks(chart.y, min, max, 6),
        values: (u, places) => tickWords(chart.y, places),
      },
    ],
    series: [{}, ...series, ...edges],
    bands,
    hooks: { draw: [(u) => drawTargets(u, chart)], setCursor: [read] },
  };
}

/** Returns the values that an axis shows, with those marked on it that leave the lines two thirds of the plot. */
function withTargets(chart, least, most) {
  if (!Number.isFinite(least) || !Number.isFinite(most)) return [NaN, NaN];
  const room = (most - least) / 2;
  const near = ({ value }) => room === 0 || (least - room <= value && value <= most + room);
  const all = [least, most, ...chart.targets.filter(near).map((target) => target.value)];
  return [Math.min(...all), Math.max(...all)];
}

function drawTargets(u, chart) {
  const context = u.ctx;
  const density = uPlot.pxRatio;
  context.save();
  context.font = `${12 * density}px ${FONT.slice(FONT.indexOf(" ") + 1)}`;
  context.textAlign = "left";
  context.textBaseline = "bottom";
  for (const target of chart.targets) {
    const { min, max } = u.scales.y;
    const away = target.value > max ? " ↑" : target.value < min ? " ↓" : "";
    const value = Math.min(Math.max(target.value, min), max);
    const words = target.label + away;
    const place = Math.round(u.valToPos(value, "y", true)) + (target.value > max ? 16 * density : 0) + 0.5;
    context.lineWidth = density;
    context.setLineDash([2 * density, 3 * density]);
    if (!away) stroke(context, colour("ink"), u.bbox.left, place, u.bbox.left + u.bbox.width, place);
    context.fillStyle = colour("ground", 0.75);
    context.fillRect(
      u.bbox.left + 3 * density,
      place - 16 * density,
      context.measureText(words).width + 6 * density,
      15 * density,
    );
    context.fillStyle = colour("ink");
    context.fillText(words, u.bbox.left + 6 * density, place - 2 * density);
  }
  context.restore();
}

/** Returns the value of a line at a place across: the last one there or before; null before it begins. */
function valueAt(line, x) {
  const { length } = line.x;
  if (!length || x < line.x[0]) return null;
  let [low, high] = [0, length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (line.x[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return line.y[low];
}

function lastOf(values) {
  return values.findLast((value) => value !== null) ?? null;
}

let measuring = null;

function widthOf(text) {
  measuring ??= document.createElement("canvas").getContext("2d");
  measuring.font = FONT;
  return measuring.measureText(text).width;
}

function lineTable(chart) {
  const banded = chart.lines.some((line) => line.low);
  const several = chart.lines.length > 1;
  const rows = [];
  const keys = [];
  for (const line of chart.lines) {
    line.x.forEach((x, at) => {
      const numbers = [x, line.y[at], ...(banded ? [line.low?.[at] ?? null, line.high?.[at] ?? null] : [])];
      rows.push([
        ...(several ? [line.label] : []),
        ...numbers.map((value, column) => format(column ? chart.y.unit : chart.x.unit, value)),
      ]);
      keys.push(numbers);
    });
  }
  const headings = [
    ...(several ? ["line"] : []),
    chart.x.label,
    chart.y.label,
    ...(banded ? ["band from", "to"] : []),
  ];
  return dataTable(headings, several ? [0] : [], rows, keys);
}

/** Returns a table of what a chart shows; the keys are those of its columns of numbers, by row. */
function dataTable(headings, words, rows, keys) {
  let number = 0;
  const columns = headings.map((_, column) => {
    if (words.includes(column)) return null;
    const at = number++;
    return keys.map((row) => row[at]);
  });
  return { name: "", title: "", headings, words, rows, keys: columns, notes: [] };
}
