// Horizontal bars of parts that add up, as elements: their words can be selected, and wrap where room is short.

/** @param {Frame} frame See figure.js. */
function barChart(chart, frame) {
  const host = element("div", { class: "bars" });
  frame.plot.append(host);
  let boxes = [];
  let at = null;

  const shown = (part) => !frame.hidden.has(part.label);
  const total = (bar) => chart.parts.filter(shown).reduce((sum, part) => sum + (part.values[bar] ?? 0), 0);

  function build() {
    const largest = Math.max(...chart.bars.map((_, bar) => total(bar)), 0) || 1;
    boxes = [];
    host.replaceChildren(
      ...chart.bars.map((name, bar) => {
        const track = element("span", { class: "track" });
        chart.parts.forEach((part) => {
          const value = part.values[bar];
          if (!shown(part) || !value) return;
          const box = element("span", {
            class: "part",
            pointerenter: () => choose(boxes.findIndex((one) => one.box === box)),
          });
          box.style.width = `${(100 * value) / largest}%`;
          box.style.background = `var(--c${part.colour})`;
          boxes.push({
            box,
            said: `${name}, ${part.label}: ${format(chart.axis.unit, value)} of ${format(chart.axis.unit, total(bar))}`,
            bar,
          });
          track.append(box);
        });
        return element(
          "div",
          { class: "bar" },
          element("span", { class: "name" }, name),
          track,
          element("span", { class: "total" }, format(chart.axis.unit, total(bar))),
        );
      }),
      element("div", { class: "axis below", "aria-hidden": "true" }, chart.axis.label),
    );
    host.onpointerleave = () => choose(-1);
  }

  function choose(number) {
    if (at !== null) boxes[at]?.box.classList.remove("chosen");
    at = boxes[number] ? number : null;
    if (at !== null) boxes[at].box.classList.add("chosen");
    frame.tell(at === null ? "" : boxes[at].said);
  }

  function relabel() {
    const entries = chart.parts.map((part) => ({ label: part.label, swatch: boxSwatch(part.colour) }));
    frame.legend.replaceChildren(legend(entries, frame.hidden, build).element);
  }

  build();
  relabel();
  return {
    update(now) {
      chart = now;
      at = null;
      build();
      relabel();
    },
    move(across, down, toEnd) {
      if (toEnd) choose(across > 0 ? boxes.length - 1 : 0);
      else if (at === null) choose(0);
      else if (across) choose(Math.min(Math.max(at + across, 0), boxes.length - 1));
      else {
        const bars = [...new Set(boxes.map((one) => one.bar))];
        const next = bars[bars.indexOf(boxes[at].bar) + down];
        if (next !== undefined) choose(boxes.findIndex((one) => one.bar === next));
      }
    },
    leave: () => choose(-1),
    redraw: () => {},
    table: () =>
      dataTable(
        ["bar", ...chart.parts.map((part) => part.label)],
        [0],
        chart.bars.map((name, bar) => [
          name,
          ...chart.parts.map((part) => format(chart.axis.unit, part.values[bar])),
        ]),
        chart.bars.map((_, bar) => chart.parts.map((part) => part.values[bar])),
      ),
    close: () => {},
  };
}
