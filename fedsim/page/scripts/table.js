// Tables that a click, or a key, sorts by any column.

/**
 * @typedef {Object} Table
 * @property {string} name Of its place on the page.
 * @property {string} title
 * @property {string[]} headings
 * @property {number[]} words Columns that hold words; the others are aligned right.
 * @property {string[][]} rows
 * @property {(?(?number)[])[]} keys By column, what it is sorted by; null: by its words.
 * @property {string[]} notes
 */

const BEST = "*";

/**
 * Returns a table that can be sorted.
 * @param {Table} table
 * @param {?{column: number, falls: boolean}} order As it was sorted before.
 */
function sortable(table, order = null) {
  const body = element("tbody");
  const heads = table.headings.map((heading, column) =>
    element(
      "th",
      { scope: "col", class: place(table, column) },
      element(
        "button",
        { type: "button", click: () => sortBy(column) },
        element("span", {}, heading),
        element("span", { class: "arrow", "aria-hidden": "true" }),
      ),
    ),
  );
  const lines = table.rows.map((row) =>
    element("tr", {}, ...row.map((cell, column) => tableCell(table, cell, column))),
  );
  let sorted = null;

  function sortBy(column, falls = sorted?.column === column ? !sorted.falls : false) {
    sorted = { column, falls };
    const key = (line) => table.keys[column]?.[line] ?? null;
    const words = (line) => table.rows[line][column];
    const numbers = table.rows.map((_, line) => line);
    numbers.sort((one, other) => {
      if (!table.keys[column])
        return (falls ? -1 : 1) * words(one).localeCompare(words(other), "en", { numeric: true });
      // What is not there is last, whichever way the rest goes.
      if (key(one) === null || key(other) === null) return (key(one) === null) - (key(other) === null);
      return (falls ? -1 : 1) * (key(one) - key(other));
    });
    body.replaceChildren(...numbers.map((line) => lines[line]));
    heads.forEach((head, at) => {
      if (at === column) head.setAttribute("aria-sort", falls ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  body.append(...lines);
  if (order && order.column < heads.length) sortBy(order.column, order.falls);
  const made = element(
    "table",
    {},
    table.title ? element("caption", {}, table.title) : null,
    element("thead", {}, element("tr", {}, ...heads)),
    body,
  );
  return {
    element: element(
      "div",
      { class: "table", id: table.name || null, tabindex: 0, role: "group", "aria-label": table.title || "Table" },
      made,
      notesOf(table.notes),
    ),
    order: () => sorted,
  };
}

function tableCell(table, cell, column) {
  const attributes = { class: place(table, column) };
  if (column === 0) return element("th", { ...attributes, scope: "row" }, cell);
  if (!cell.endsWith(BEST)) return element("td", attributes, cell);
  return element(
    "td",
    { class: `${attributes.class} best` },
    cell.slice(0, -1),
    element("span", { class: "mark" }, BEST),
  );
}

function place(table, column) {
  return table.words.includes(column) ? "words" : "number";
}

/** Returns sentences below a table or a figure; null where there are none. */
function notesOf(notes) {
  return notes.length
    ? element("ul", { class: "notes" }, ...notes.map((note) => element("li", {}, note)))
    : null;
}
