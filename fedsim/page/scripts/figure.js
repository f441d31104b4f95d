// A figure: its words, its legend, its chart, what is read from it, and its data as a table on demand.

/**
 * What a chart draws into, and says things by.
 * @typedef {Object} Frame
 * @property {HTMLElement} plot Where the drawing goes.
 * @property {HTMLElement} legend Where the legend goes.
 * @property {HTMLElement} controls Where the reader chooses what is drawn.
 * @property {Set<string>} hidden Labels of what the reader has switched off.
 * @property {function(string, string=): void} tell Shows what is read; and says more to those who cannot see it.
 */

/**
 * What every kind of chart offers: `update(chart)` shows other data, `move(across, down, toEnd)` goes to the next
 * reading by keys, `leave()` ends the reading, `redraw()` draws again, `table()` gives the data as a Table, and
 * `close()` lets go of everything.
 */
const CHARTS = { line: lineChart, points: pointChart, bars: barChart, heat: heatChart, gantt: ganttChart };

const KEYS = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  Home: [-1, 0, true],
  End: [1, 0, true],
};

const MOST_TABLE_ROWS = 200;

/**
 * Returns a figure of the page.
 * @param {{name: string, title: string, text: string, notes: string[], chart: Object}} figure
 */
function figureOf(figure) {
  const hidden = new Set();
  const words = element("p", { class: "text", id: `${figure.name}-text` }, figure.text);
  const title = element("h3", { id: `${figure.name}-title` }, figure.title);
  const reading = element("p", { class: "reading", "aria-hidden": "true" });
  const spoken = element("output", { class: "unseen", "aria-live": "polite" });
  const plot = element("div", {
    class: "plot",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "chart",
    "aria-labelledby": `${figure.name}-title`,
    "aria-describedby": `${figure.name}-text`,
    keydown: onKey,
    blur: () => drawing?.leave(),
  });
  const frame = {
    plot,
    hidden,
    legend: element("div", { class: "legends" }),
    controls: element("div"),
    tell(short, long = short) {
      reading.textContent = short;
      spoken.textContent = document.activeElement === plot ? long : "";
    },
  };
  const notes = element("div");
  const data = element(
    "details",
    { class: "data", toggle: () => showData() },
    element("summary", {}, "In words and numbers"),
    words,
  );
  const made = element(
    "figure",
    { id: figure.name, class: `of-${figure.chart.kind}`, "aria-labelledby": `${figure.name}-title` },
    title,
    frame.controls,
    frame.legend,
    plot,
    reading,
    spoken,
    notes,
    data,
  );
  notes.replaceChildren(...[notesOf(figure.notes)].filter(Boolean));
  let drawing = null;

  function onKey(event) {
    const step = KEYS[event.key];
    if (event.target !== plot || event.ctrlKey || event.altKey || event.metaKey) return;
    if (step) drawing.move(...step);
    else if (event.key === "Escape") drawing.leave();
    else return;
    event.preventDefault();
  }

  function showData(all = false) {
    data.querySelector(".rows")?.remove();
    if (!data.open) return;
    const table = drawing.table();
    const total = table.rows.length;
    if (!all && total > MOST_TABLE_ROWS) {
      table.rows = table.rows.slice(0, MOST_TABLE_ROWS);
      table.keys = table.keys.map((column) => column?.slice(0, MOST_TABLE_ROWS) ?? null);
    }
    table.title = `Data: ${figure.title}`;
    const more =
      table.rows.length < total
        ? element("button", { type: "button", click: () => showData(true) }, `Show all ${total} rows`)
        : null;
    data.append(element("div", { class: "rows" }, sortable(table).element, more));
  }

  return {
    element: made,
    kind: figure.chart.kind,
    /** Draws the chart; the figure has to be in the page by now. */
    draw() {
      drawing ??= CHARTS[figure.chart.kind](figure.chart, frame);
    },
    update(now) {
      figure = now;
      title.textContent = now.title;
      words.textContent = now.text;
      notes.replaceChildren(...[notesOf(now.notes)].filter(Boolean));
      drawing.update(now.chart);
      if (data.open) showData();
    },
    redraw: () => drawing?.redraw(),
    close: () => drawing?.close(),
  };
}
