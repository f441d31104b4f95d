// Single points, such as one for each client. The nearest one to the pointer is read; arrow keys go from one to the next.

/** @param {Frame} frame See figure.js. */
function pointChart(chart, frame) {
  const host = element("div", { class: "canvas" });
  frame.plot.append(host);
  let points = [];
  let room = null;
  let chosen = null;

  function collect() {
    points = chart.groups.flatMap((group, number) =>
      frame.hidden.has(group.label)
        ? []
        : group.x
            .map((x, at) => ({ x, y: group.y[at], name: group.names[at], number }))
            .filter(({ x, y }) => extent(chart.x, [x])[0] < Infinity && extent(chart.y, [y])[0] < Infinity),
    );
    points.sort((one, other) => one.x - other.x || one.y - other.y);
  }

  const sheet = plane(host, (context, width) => {
    const height = Math.round(Math.min(Math.max(width * 0.6, 260), 360));
    sheet.resize(height);
    const range = (axis, of) => reach(axis, ...extent(axis, points.map(of)));
    room = axes(
      context,
      width,
      height,
      { axis: chart.x, range: range(chart.x, (p) => p.x) },
      { axis: chart.y, range: range(chart.y, (p) => p.y) },
    );
    const radius = points.length > 2000 ? 2 : points.length > 300 ? 3 : 4.5;
    const colours = chart.groups.map((group) => colourAt(group.colour, points.length > 300 ? 0.55 : 0.8));
    for (const point of points) {
      context.fillStyle = colours[point.number];
      context.fill(
        shapeAt(chart.groups[point.number].number, room.placeX(point.x), room.placeY(point.y), radius),
      );
    }
    if (chosen && points.includes(chosen)) {
      context.strokeStyle = colour("ink");
      context.lineWidth = 2;
      context.stroke(shapeAt(0, room.placeX(chosen.x), room.placeY(chosen.y), radius + 4));
    }
  });

  function choose(point) {
    if (point === chosen) return;
    chosen = point;
    frame.tell(point ? said(point) : "");
    sheet.redraw();
  }

  function said({ x, y, name, number }) {
    const group = chart.groups.length > 1 ? ` (${chart.groups[number].label})` : "";
    return `${name}${group}: ${chart.x.label} ${format(chart.x.unit, x)}, ${chart.y.label} ${format(chart.y.unit, y)}`;
  }

  setAttributes(sheet.canvas, {
    pointermove: (event) => {
      let best = null;
      let least = 24 ** 2;
      for (const point of points) {
        const away =
          (room.placeX(point.x) - event.offsetX) ** 2 + (room.placeY(point.y) - event.offsetY) ** 2;
        if (away < least) [best, least] = [point, away];
      }
      choose(best);
    },
    pointerleave: () => choose(null),
  });

  function relabel() {
    const entries = chart.groups.map((group) => ({
      label: group.label,
      swatch: pointSwatch(group.number, group.colour),
    }));
    frame.legend.replaceChildren(
      ...(entries.length > 1
        ? [
            legend(entries, frame.hidden, () => {
              collect();
              sheet.redraw();
            }).element,
          ]
        : []),
    );
  }

  collect();
  relabel();
  sheet.redraw();
  return {
    update(now) {
      chart = now;
      chosen = null;
      collect();
      relabel();
      sheet.redraw();
    },
    move(across, down, toEnd) {
      const at = points.indexOf(chosen);
      const next = toEnd ? (across > 0 ? points.length - 1 : 0) : at < 0 ? 0 : at + (across || -down);
      choose(points[Math.min(Math.max(next, 0), points.length - 1)] ?? null);
    },
    leave: () => choose(null),
    redraw: sheet.redraw,
    table: () => {
      const all = chart.groups.flatMap((group) =>
        group.names.map((name, at) => [name, group.label, group.x[at], group.y[at]]),
      );
      return dataTable(
        ["name", "group", chart.x.label, chart.y.label],
        [0, 1],
        all.map(([name, group, x, y]) => [name, group, format(chart.x.unit, x), format(chart.y.unit, y)]),
        all.map((row) => row.slice(2)),
      );
    },
    close: sheet.close,
  };
}
