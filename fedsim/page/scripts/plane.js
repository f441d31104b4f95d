// A canvas of our own, for charts that uPlot has no form for: points, cells and spans.

/**
 * Puts a canvas into an element. `redraw` draws, and so does any change of its width or of the colours.
 * @param {HTMLElement} host
 * @param {function(CanvasRenderingContext2D, number): number} paint Draws for a width, after asking `resize`.
 * @returns {{canvas: HTMLCanvasElement, redraw: function(): void, resize: function(number): void}}
 */
function plane(host, paint) {
  const canvas = element("canvas", { "aria-hidden": "true" });
  host.append(canvas);
  const context = canvas.getContext("2d");
  let width = 0;

  /** Makes the canvas as high as a drawing needs; it is empty then. */
  function resize(height) {
    const density = Math.max(devicePixelRatio || 1, isPrinting ? 3 : 1);
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(height * density);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    context.setTransform(density, 0, 0, density, 0, 0);
    context.font = FONT;
    context.textBaseline = "middle";
  }

  function redraw() {
    width = host.clientWidth;
    if (width) paint(context, width);
  }

  const ends = [onTheme(redraw), onWidth(host, redraw)];
  return { canvas, redraw, resize, close: () => ends.forEach((end) => end()) };
}

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
let isPrinting = false;

/**
 * Draws the axes of a chart, and returns where it has room and how values become places.
 * @param {{axis: Object, range: number[]}} x
 * @param {{axis: Object, range: number[]}} y
 */
function axes(context, width, height, x, y) {
  const down = ticks(y.axis, ...y.range, Math.max(2, height / 44));
  const words = tickWords(y.axis, down);
  const left = Math.ceil(Math.max(...words.map((word) => context.measureText(word).width), 0)) + 12;
  const [top, right, bottom] = [26, width - 14, height - 42];
  const placeX = placing(x.axis, x.range, left, right);
  const placeY = placing(y.axis, y.range, bottom, top);
  const ink = colour("muted");
  const grid = colour("rule");
  context.lineWidth = 1;
  context.fillStyle = ink;
  context.textAlign = "left";
  context.fillText(axisWords(y.axis), 0, 9);
  context.textAlign = "right";
  down.forEach((value, at) => {
    const place = Math.round(placeY(value)) + 0.5;
    stroke(context, grid, left, place, right, place);
    context.fillText(words[at], left - 8, place);
  });
  acrossTicks(context, x, left, right, bottom, placeX);
  return { left, right, top, bottom, placeX, placeY };
}

/** Draws the ticks and the words of a horizontal axis. */
function acrossTicks(context, x, left, right, bottom, placeX) {
  const across = ticks(x.axis, ...x.range, Math.max(2, (right - left) / 84));
  const words = tickWords(x.axis, across);
  context.fillStyle = colour("muted");
  stroke(context, colour("axis"), left, bottom + 0.5, right, bottom + 0.5);
  context.textAlign = "center";
  across.forEach((value, at) => {
    const place = Math.round(placeX(value)) + 0.5;
    stroke(context, colour("axis"), place, bottom, place, bottom + 4);
    const half = context.measureText(words[at]).width / 2;
    context.fillText(words[at], Math.min(Math.max(place, half), right + 14 - half), bottom + 14);
  });
  context.textAlign = "right";
  context.fillText(axisWords(x.axis), right, bottom + 33);
}

function stroke(context, style, fromX, fromY, toX, toY) {
  context.strokeStyle = style;
  context.beginPath();
  context.moveTo(fromX, fromY);
  context.lineTo(toX, toY);
  context.stroke();
}

/** Returns a text that fits into a width, cut off where it does not. */
function fitting(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length--;
  return `${text.slice(0, length)}…`;
}
