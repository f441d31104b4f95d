// The legend of a figure: what each colour stands for. Its entries switch things off and on.

/**
 * Returns a legend.
 * @param {{label: string, swatch: Node}[]} entries
 * @param {Set<string>} hidden Labels of what is switched off; changed by the reader.
 * @param {?function(): void} changed Called then; null where nothing can be switched.
 * @returns {{element: HTMLElement, values: function(string[]): void}} `values` writes beside the labels.
 */
function legend(entries, hidden, changed) {
  const cells = entries.map(() => element("span", { class: "value" }));
  const items = entries.map(({ label, swatch }, at) => {
    const inner = [swatch, element("span", { class: "label" }, label), cells[at]];
    if (changed === null || entries.length < 2)
      return element("li", {}, element("span", { class: "entry" }, ...inner));
    const button = element(
      "button",
      {
        type: "button",
        class: "entry",
        "aria-pressed": String(!hidden.has(label)),
        title: "Show or hide",
        click: () => {
          if (!hidden.delete(label)) hidden.add(label);
          button.setAttribute("aria-pressed", String(!hidden.has(label)));
          changed();
        },
      },
      ...inner,
    );
    return element("li", {}, button);
  });
  return {
    element: element("ul", { class: "legend", "aria-label": "Legend" }, ...items),
    values: (texts) =>
      texts.forEach((text, at) => {
        cells[at].textContent = text;
      }),
  };
}

/** Returns a piece of the n-th line of a figure. */
function lineSwatch(number, colour) {
  const line = drawn("line", {
    x1: 0,
    x2: 26,
    y1: 5,
    y2: 5,
    "stroke-dasharray": dashAt(number).join(" ") || null,
  });
  line.style.stroke = `var(--c${colour})`;
  return drawn("svg", { class: "swatch", width: 26, height: 10, "aria-hidden": "true" }, line);
}

/** Returns a piece of an area. */
function boxSwatch(colour) {
  const box = drawn("rect", { x: 0, y: 0, width: 12, height: 10, rx: 2 });
  box.style.fill = `var(--c${colour})`;
  return drawn("svg", { class: "swatch", width: 12, height: 10, "aria-hidden": "true" }, box);
}

// Corners of shapes, in the order of MARKERS in fedsim/figures/palette.py.
const SHAPES = [
  (x, y, r) => polygon(x, y, r, 24, 0),
  (x, y, r) => polygon(x, y, r * 1.2, 4, Math.PI / 4),
  (x, y, r) => polygon(x, y, r * 1.3, 3, -Math.PI / 2),
  (x, y, r) => polygon(x, y, r * 1.3, 4, 0),
  (x, y, r) => cross(x, y, r * 1.25, Math.PI / 4),
  (x, y, r) => cross(x, y, r * 1.25, 0),
];

function cross(x, y, radius, turn) {
  const thin = radius * 0.28;
  const corners = [
    [radius, thin],
    [radius, -thin],
    [thin, -thin],
    [thin, -radius],
    [-thin, -radius],
    [-thin, -thin],
    [-radius, -thin],
    [-radius, thin],
    [-thin, thin],
    [-thin, radius],
    [thin, radius],
    [thin, thin],
  ];
  return corners.map(([across, down]) => [
    x + across * Math.cos(turn) - down * Math.sin(turn),
    y + across * Math.sin(turn) + down * Math.cos(turn),
  ]);
}

function polygon(x, y, radius, corners, turn) {
  return Array.from({ length: corners }, (_, at) => {
    const angle = turn + (2 * Math.PI * at) / corners;
    return [x + radius * Math.cos(angle), y + radius * Math.sin(angle)];
  });
}

function cornersAt(number, x, y, radius) {
  return SHAPES[number % SHAPES.length](x, y, radius);
}

/** Returns the outline of a point of the n-th group of a figure. */
function shapeAt(number, x, y, radius) {
  const path = new Path2D();
  for (const corner of cornersAt(number, x, y, radius)) path.lineTo(...corner);
  path.closePath();
  return path;
}

/** Returns a point of the n-th group of a figure. */
function pointSwatch(number, colour) {
  const shape = drawn("polygon", { points: cornersAt(number, 6, 6, 4).join(" ") });
  shape.style.fill = `var(--c${colour})`;
  return drawn("svg", { class: "swatch", width: 12, height: 12, "aria-hidden": "true" }, shape);
}
