// Who did what when, in a range of rounds that the reader chooses. Phases differ in colour and in height.

const HEIGHTS = [1, 0.5, 0.75, 0.3];
const MOST_ROWS = 30; // As MOST_CLIENTS in fedsim/figures/gantt.py.
const ROUNDS_AT_FIRST = 3;

/** @param {Frame} frame See figure.js. */
function ganttChart(chart, frame) {
  const from = element("input", {
    type: "number",
    min: 1,
    change: () => select(),
    "aria-label": "First round",
  });
  const to = element("input", { type: "number", min: 1, change: () => select(), "aria-label": "Last round" });
  const host = element("div", { class: "canvas" });
  const controls = element(
    "div",
    { class: "controls" },
    element("button", { type: "button", click: () => shift(-1), "aria-label": "Earlier rounds" }, "‹"),
    element("label", {}, "Rounds ", from),
    element("label", {}, " to ", to),
    element("button", { type: "button", click: () => shift(1), "aria-label": "Later rounds" }, "›"),
  );
  const left = element("p", { class: "left" });
  frame.controls.replaceChildren(controls);
  frame.plot.append(host, left);
  let spans = null;
  let shown = { rows: [], spans: [], began: 0, ended: 1, omitted: 0 };
  let room = null;
  let chosen = null;

  const sheet = plane(host, (context, width) => {
    const tall = Math.max(Math.min(520 / Math.max(shown.rows.length, 1), 20), 5);
    const height = Math.ceil(tall * shown.rows.length) + 72;
    sheet.resize(height);
    const widest = Math.min(
      Math.max(...shown.rows.map((row) => context.measureText(chart.rows[row]).width), 0),
      width * 0.28,
    );
    const [start, end, top] = [Math.ceil(widest) + 10, width - 14, 24];
    const axis = { label: "time", unit: "s", scale: "linear" };
    const place = placing(axis, [shown.began, shown.ended], start, end);
    room = { tall, top, place, start };
    const bottom = top + tall * shown.rows.length;
    boundaries(context, place, top, bottom, start, end);
    acrossTicks(context, { axis, range: [shown.began, shown.ended] }, start, end, bottom + 2, place);
    names(context, start, tall, top);
    const colours = chart.colours.map((number) => colourAt(number));
    for (const span of shown.spans) {
      if (hidden(span)) continue;
      const [x, y, wide, high] = box(span);
      context.fillStyle = colours[spans.phase[span]];
      context.fillRect(x, y, wide, high);
      if (span === chosen) {
        context.strokeStyle = colour("ink");
        context.lineWidth = 2;
        context.strokeRect(x - 1, y - 1, wide + 2, high + 2);
      }
    }
  });

  const hidden = (span) => frame.hidden.has(chart.phases[spans.phase[span]]);

  function box(span) {
    const x = Math.max(room.place(spans.began[span]), room.start);
    const wide = Math.max(room.place(spans.ended[span]) - x, 0.75);
    const line = room.tall * 0.8;
    const high = Math.max(line * HEIGHTS[spans.phase[span] % HEIGHTS.length], 1.5);
    return [x, room.top + shown.lineOf.get(spans.row[span]) * room.tall + (room.tall - high) / 2, wide, high];
  }

  function boundaries(context, place, top, bottom, start, end) {
    context.textAlign = "left";
    context.lineWidth = 1;
    let free = start;
    chart.rounds.forEach((number, at) => {
      const began = chart.roundBegan[at] * chart.stepS;
      if (number < shown.first || number > shown.last) return;
      const x = Math.round(Math.min(Math.max(place(began), start), end)) + 0.5;
      stroke(context, colour("rule"), x, top - 4, x, bottom);
      const said = `round ${number}`;
      context.fillStyle = colour("muted");
      if (x + 4 >= free && x + 4 + context.measureText(said).width < end) {
        context.fillText(said, x + 4, 10);
        free = x + 12 + context.measureText(said).width;
      }
    });
  }

  function names(context, start, tall, top) {
    context.fillStyle = colour("muted");
    context.textAlign = "right";
    const every = Math.ceil(13 / tall);
    shown.rows.forEach((row, line) => {
      if (line % every === 0)
        context.fillText(fitting(context, chart.rows[row], start - 8), start - 6, top + (line + 0.5) * tall);
    });
  }

  /** Shows the rounds that are chosen, and of their clients a third each of the slowest, the middle, the fastest. */
  function select() {
    const numbers = chart.rounds;
    const [least, most] = [numbers[0] ?? 0, numbers[numbers.length - 1] ?? 0];
    const first = Math.min(Math.max(Math.round(Number(from.value)) || least, least), most);
    const last = Math.min(Math.max(Math.round(Number(to.value)) || first, first), most);
    for (const [input, value] of [
      [from, first],
      [to, last],
    ]) {
      setAttributes(input, { min: least, max: most });
      input.value = value;
    }
    let within = [];
    for (let span = 0; span < spans.round.length; span++) {
      if (spans.round[span] >= first && spans.round[span] <= last) within.push(span);
    }
    const told = slowest(within, first, last);
    const order = slowestFirst(within);
    const rows = thirds(order);
    const kept = new Set(rows);
    within = within.filter((span) => kept.has(spans.row[span]));
    const at = numbers.indexOf(first);
    const [began, ended] = extent(
      { scale: "linear" },
      within.map((span) => spans.began[span]),
      within.map((span) => spans.ended[span]),
      at < 0 ? [] : [chart.roundBegan[at] * chart.stepS],
    );
    shown = {
      rows,
      spans: within,
      first,
      last,
      began: Number.isFinite(began) ? began : 0,
      ended: Number.isFinite(began) ? Math.max(ended, began + chart.stepS) : 1,
      lineOf: new Map(rows.map((row, line) => [row, line])),
    };
    chosen = null;
    const third = MOST_ROWS / 3;
    left.textContent = [
      told,
      order.length > rows.length
        ? `Shown are the ${third} slowest clients of these rounds, ${third} in the middle and the ${third} fastest.`
        : "",
    ]
      .join(" ")
      .trim();
    sheet.redraw();
  }

  /** Returns the rows of spans, the slowest first, by the mean time of their dispatches in a round. */
  function slowestFirst(within) {
    const [spent, turns] = [new Map(), new Map()];
    for (const span of within) {
      const row = spans.row[span];
      spent.set(row, (spent.get(row) ?? 0) + lasted(span));
      turns.set(row, (turns.get(row) ?? new Set()).add(spans.round[span]));
    }
    const mean = (row) => spent.get(row) / turns.get(row).size;
    return [...spent.keys()].sort((one, other) => mean(other) - mean(one) || one - other);
  }

  function thirds(order) {
    if (order.length <= MOST_ROWS) return order;
    const third = MOST_ROWS / 3;
    const middle = Math.floor((order.length - third) / 2);
    return [...order.slice(0, third), ...order.slice(middle, middle + third), ...order.slice(-third)];
  }

  /** Says who ended last in some rounds, given their spans, and with what. */
  function slowest(within, first, last) {
    if (!within.length) return "Nobody did anything in these rounds.";
    const held = within.reduce((one, other) => (spans.ended[other] > spans.ended[one] ? other : one));
    const own = within.filter(
      (span) => spans.row[span] === spans.row[held] && spans.round[span] === spans.round[held],
    );
    const most = own.reduce((one, other) => (lasted(other) > lasted(one) ? other : one));
    const rounds = first === last ? `round ${first}` : `rounds ${first} to ${last}`;
    return `Last in ${rounds}: ${chart.rows[spans.row[held]]}, mostly ${chart.phases[spans.phase[most]]} (${duration(lasted(most))}).`;
  }

  const lasted = (span) => spans.ended[span] - spans.began[span];

  function shift(by) {
    const wide = Number(to.value) - Number(from.value) + 1;
    const last = chart.rounds[chart.rounds.length - 1] ?? 0;
    const first = Math.min(
      Math.max(Number(from.value) + by * wide, chart.rounds[0] ?? 0),
      Math.max(last - wide + 1, chart.rounds[0] ?? 0),
    );
    from.value = first;
    to.value = first + wide - 1;
    select();
  }

  function choose(span) {
    if (span === chosen) return;
    chosen = span;
    frame.tell(
      span === null
        ? ""
        : `${chart.rows[spans.row[span]]}, round ${spans.round[span]}: ${chart.phases[spans.phase[span]]} for ${duration(lasted(span))}, from ${duration(spans.began[span])} to ${duration(spans.ended[span])}`,
    );
    sheet.redraw();
  }

  setAttributes(sheet.canvas, {
    pointermove: (event) =>
      choose(
        shown.spans.find((span) => {
          if (hidden(span)) return false;
          const [x, , wide] = box(span);
          const line = Math.floor((event.offsetY - room.top) / room.tall);
          return (
            shown.lineOf.get(spans.row[span]) === line &&
            event.offsetX >= x - 1 &&
            event.offsetX <= x + wide + 1
          );
        }) ?? null,
      ),
    pointerleave: () => choose(null),
  });

  function relabel() {
    const used = new Set(spans.phase);
    const entries = chart.phases
      .map((label, number) => ({ label, swatch: boxSwatch(chart.colours[number]) }))
      .filter((_, number) => used.has(number));
    frame.legend.replaceChildren(legend(entries, frame.hidden, sheet.redraw).element);
  }

  /** Shows the first rounds. */
  function begin() {
    spans = decoded(chart);
    from.value = chart.rounds[0] ?? 0;
    to.value = chart.rounds[Math.min(ROUNDS_AT_FIRST, chart.rounds.length) - 1] ?? 0;
    relabel();
    select();
  }

  begin();
  return {
    /** Shows another run; while a run goes on, it has no Gantt chart. */
    update(now) {
      chart = now;
      begin();
    },
    move(across, down, toEnd) {
      const visible = shown.spans.filter((span) => !hidden(span));
      visible.sort(
        (one, other) =>
          shown.lineOf.get(spans.row[one]) - shown.lineOf.get(spans.row[other]) ||
          spans.began[one] - spans.began[other],
      );
      const at = visible.indexOf(chosen);
      if (toEnd) choose(visible[across > 0 ? visible.length - 1 : 0] ?? null);
      else if (at < 0) choose(visible[0] ?? null);
      else if (across) choose(visible[Math.min(Math.max(at + across, 0), visible.length - 1)]);
      else {
        const line = shown.lineOf.get(spans.row[chosen]) + down;
        const next = visible.filter((span) => shown.lineOf.get(spans.row[span]) === line);
        if (next.length) choose(next.reduce((one, other) => (away(other) < away(one) ? other : one)));
      }
    },
    leave: () => choose(null),
    redraw: sheet.redraw,
    table: () => {
      const all = Array.from(spans.row.keys());
      return dataTable(
        ["client", "phase", "round", "from", "to", "for"],
        [0, 1],
        all.map((span) => [
          chart.rows[spans.row[span]],
          chart.phases[spans.phase[span]],
          String(spans.round[span]),
          duration(spans.began[span]),
          duration(spans.ended[span]),
          duration(lasted(span)),
        ]),
        all.map((span) => [spans.round[span], spans.began[span], spans.ended[span], lasted(span)]),
      );
    },
    close: sheet.close,
  };

  function away(span) {
    return Math.abs(spans.began[span] - spans.began[chosen]);
  }
}

/** Returns the spans of a Gantt chart, with times in seconds. */
function decoded(chart) {
  const [began, ended] = [new Float64Array(chart.row.length), new Float64Array(chart.row.length)];
  let step = 0;
  chart.later.forEach((later, at) => {
    step += later;
    began[at] = step * chart.stepS;
    ended[at] = (step + chart.lasted[at]) * chart.stepS;
  });
  return { row: chart.row, phase: chart.phase, round: chart.round, began, ended };
}
