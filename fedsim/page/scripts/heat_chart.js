// A grid of cells, stronger in colour where there is more. Rows that are thinner than a pixel share one, by their mean.

const MOST_HEAT_HEIGHT = 520;

/** @param {Frame} frame See figure.js. */
function heatChart(chart, frame) {
  const host = element("div", { class: "canvas" });
  frame.plot.append(host);
  let room = null;
  let chosen = null;
  let range = [0, 1];

  const sheet = plane(host, (context, width) => {
    const [rows, columns] = [chart.rows.length, chart.columns.length];
    const cellHeight = Math.min(rows ? Math.max(MOST_HEAT_HEIGHT / rows, 0) : 0, 22);
    const height = Math.ceil(cellHeight * rows) + 48;
    sheet.resize(height);
    const names = Math.min(
      Math.max(...chart.rows.slice(0, 2000).map((name) => context.measureText(name).width), 0),
      width * 0.3,
    );
    const left = Math.ceil(names) + 10;
    const cellWidth = Math.min((width - left) / Math.max(columns, 1), 72);
    room = { left, top: 26, cellWidth, cellHeight };
    const shades = Array.from({ length: 65 }, (_, at) => shade(at / 64));
    const lines = Math.min(rows, Math.ceil(cellHeight * rows));
    const tall = (cellHeight * rows) / Math.max(lines, 1);
    const gap = cellHeight >= 8 && cellWidth >= 8 ? 1 : 0;
    for (let line = 0; line < lines; line++) {
      const from = Math.floor((line * rows) / lines);
      const to = Math.max(Math.floor(((line + 1) * rows) / lines), from + 1);
      for (let column = 0; column < columns; column++) {
        const value = meanOf(chart.values, from, to, column);
        if (value === null) continue;
        context.fillStyle =
          shades[Math.round(64 * Math.min(Math.max((value - range[0]) / (range[1] - range[0] || 1), 0), 1))];
        context.fillRect(
          left + column * cellWidth,
          26 + line * tall,
          cellWidth - gap,
          tall - gap + (gap ? 0 : 0.5),
        );
      }
    }
    words(context, left, cellWidth, cellHeight, height);
    if (chosen) {
      context.strokeStyle = colour("ink");
      context.lineWidth = 2;
      context.strokeRect(
        left + chosen.column * cellWidth - 1,
        26 + chosen.row * cellHeight - 1,
        cellWidth + 1,
        Math.max(cellHeight + 1, 3),
      );
    }
  });

  function words(context, left, cellWidth, cellHeight, height) {
    context.fillStyle = colour("muted");
    context.textAlign = "right";
    const everyRow = Math.max(1, Math.ceil(14 / (cellHeight || 1)));
    chart.rows.forEach((name, row) => {
      if (row % everyRow === 0)
        context.fillText(fitting(context, name, left - 8), left - 6, 26 + (row + 0.5) * cellHeight);
    });
    context.textAlign = "center";
    const widest = Math.max(...chart.columns.map((name) => context.measureText(name).width), 1);
    const everyColumn = Math.max(1, Math.ceil((widest + 6) / cellWidth));
    chart.columns.forEach((name, column) => {
      if (column % everyColumn === 0) context.fillText(name, left + (column + 0.5) * cellWidth, height - 12);
    });
    context.textAlign = "left";
    context.fillText(`${chart.rowAxis} down, ${chart.columnAxis} across`, 0, 9);
  }

  function choose(row, column) {
    const inside = row >= 0 && row < chart.rows.length && column >= 0 && column < chart.columns.length;
    chosen = inside ? { row, column } : null;
    frame.tell(
      inside
        ? `${chart.rowAxis} ${chart.rows[row]}, ${chart.columnAxis} ${chart.columns[column]}: ${format(chart.axis.unit, chart.values[row][column])}`
        : "",
    );
    sheet.redraw();
  }

  setAttributes(sheet.canvas, {
    pointermove: (event) =>
      choose(
        Math.floor((event.offsetY - room.top) / room.cellHeight),
        Math.floor((event.offsetX - room.left) / room.cellWidth),
      ),
    pointerleave: () => choose(-1, -1),
  });

  function prepare() {
    const [least, most] = extent({ scale: "linear" }, ...chart.values);
    range = least <= most ? [Math.min(least, 0), most] : [0, 1];
    frame.legend.replaceChildren(
      element(
        "div",
        { class: "ramp" },
        element("span", {}, chart.axis.label),
        element("span", {}, format(chart.axis.unit, range[0])),
        element("span", { class: "shades", "aria-hidden": "true" }),
        element("span", {}, format(chart.axis.unit, range[1])),
      ),
    );
  }

  prepare();
  sheet.redraw();
  return {
    update(now) {
      chart = now;
      chosen = null;
      prepare();
      sheet.redraw();
    },
    move(across, down, toEnd) {
      if (!chosen) choose(0, 0);
      else if (toEnd) choose(chosen.row, across > 0 ? chart.columns.length - 1 : 0);
      else
        choose(
          Math.min(Math.max(chosen.row + down, 0), chart.rows.length - 1),
          Math.min(Math.max(chosen.column + across, 0), chart.columns.length - 1),
        );
    },
    leave: () => choose(-1, -1),
    redraw: sheet.redraw,
    table: () =>
      dataTable(
        [chart.rowAxis, ...chart.columns],
        [0],
        chart.rows.map((name, row) => [
          name,
          ...chart.values[row].map((value) => format(chart.axis.unit, value)),
        ]),
        chart.values,
      ),
    close: sheet.close,
  };
}

/** Returns a colour between that of the least and that of the most. */
function shade(share) {
  probe ??= document.body.appendChild(element("span", { hidden: true }));
  probe.style.color = `color-mix(in oklab, var(--heat-most) ${100 * share}%, var(--heat-least))`;
  return getComputedStyle(probe).color;
}

function meanOf(values, from, to, column) {
  let sum = 0;
  let number = 0;
  for (let row = from; row < to; row++) {
    const value = values[row][column];
    if (value !== null) {
      sum += value;
      number++;
    }
  }
  return number ? sum / number : null;
}
