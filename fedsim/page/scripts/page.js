// The page, made from its JSON; and what replaces parts of it while a run goes on.

/**
 * @typedef {Object} Page
 * @property {string} title
 * @property {"run"|"comparison"|"study"} kind
 * @property {string} answer
 * @property {?Table} table
 * @property {string[]} remarks
 * @property {{name: string, title: string, figures: Object[]}[]} sections
 * @property {Table[]} tables
 * @property {[string, string][]} facts
 */

const DATA = JSON.parse(document.getElementById("data").textContent);

const parts = {};
const figures = new Map();
const tables = new Map();

/**
 * Shows a page in the empty document.
 * @param {Page} page
 */
function showPage(page) {
  parts.answer = element("p", { class: "answer" });
  parts.head = element("div", { class: "head-table" });
  parts.remarks = element("div", { class: "remarks" });
  parts.sections = element("div");
  parts.tables = element(
    "section",
    { id: "tables", class: "tables", "aria-labelledby": "tables-title" },
    element("h2", { id: "tables-title" }, "Tables"),
  );
  parts.facts = element("dl", { class: "facts" });
  parts.contents = element("ul");
  parts.main = element(
    "main",
    { id: "main" },
    element("p", { class: "kind" }, page.kind),
    element("h1", {}, page.title),
    parts.answer,
    parts.head,
    parts.remarks,
    parts.sections,
    parts.tables,
    element(
      "section",
      { id: "facts", "aria-labelledby": "facts-title" },
      element("h2", { id: "facts-title" }, "How it was done"),
      parts.facts,
    ),
  );
  document.getElementById("unscripted")?.remove();
  document.body.append(
    element("a", { class: "skip", href: "#main" }, "Skip to the results"),
    element("header", { class: "top" }, element("p", { class: "brand" }, "fedsim"), themeSwitch()),
    element(
      "div",
      { class: "layout" },
      element("nav", { class: "contents", "aria-label": "Contents" }, parts.contents),
      parts.main,
    ),
  );
  replaceAnswer(page.answer);
  if (page.table) replaceTable(page.table, parts.head);
  replaceRemarks(page.remarks);
  page.sections.forEach(replaceSection);
  page.tables.forEach((table) => replaceTable(table));
  replaceFacts(page.facts);
  parts.tables.hidden = page.tables.length === 0;
  listContents();
}

/** Shows another sentence of result. */
function replaceAnswer(sentence) {
  parts.answer.textContent = unbroken(sentence);
}

/** Shows what a reader has to know to read the figures. */
function replaceRemarks(remarks) {
  parts.remarks.replaceChildren(
    ...remarks.map((remark) => element("p", {}, element("strong", {}, "Note: "), remark)),
  );
}

/** Shows how it was done: names, and what they stand for. */
function replaceFacts(facts) {
  parts.facts.replaceChildren(
    ...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

/**
 * Shows a table in the place of the one of the same name, sorted as the reader has sorted that; or a new one.
 * @param {Table} table
 * @param {HTMLElement} home Where a new one goes.
 */
function replaceTable(table, home = parts.tables) {
  const before = tables.get(table.name);
  const made = sortable(table, before?.order());
  if (before) before.element.replaceWith(made.element);
  else home.append(made.element);
  parts.tables.hidden = !parts.tables.querySelector(".table");
  tables.set(table.name, made);
}

/** Shows a section: figures that are there already with other data, and new ones below them. */
function replaceSection(section) {
  let home = document.getElementById(section.name);
  if (!home) {
    home = element(
      "section",
      { id: section.name, "aria-labelledby": `${section.name}-title` },
      element("h2", { id: `${section.name}-title` }, section.title),
      element("div", { class: "figures" }),
    );
    parts.sections.append(home);
    listContents();
  }
  for (const figure of section.figures) replaceFigure(figure, home.querySelector(".figures"));
}

/**
 * Shows a figure in the place of the one of the same name, with what the reader has switched off; or a new one.
 * @param {Object} figure
 * @param {HTMLElement} home Where a new one goes.
 */
function replaceFigure(figure, home) {
  const before = figures.get(figure.name);
  if (before?.kind === figure.chart.kind) {
    before.update(figure);
    return;
  }
  const made = figureOf(figure);
  if (before) {
    before.close();
    before.element.replaceWith(made.element);
  } else home.append(made.element);
  figures.set(figure.name, made);
  made.draw();
}

function listContents() {
  const sections = [...parts.main.querySelectorAll("section")].filter((section) => !section.hidden);
  parts.contents.replaceChildren(
    ...sections.map((section) =>
      element("li", {}, element("a", { href: `#${section.id}` }, section.querySelector("h2").textContent)),
    ),
  );
}

/** Draws everything for paper: in light colours, as wide as a page is; and for the screen again. */
function print(is) {
  isPrinting = is;
  document.documentElement.classList.toggle("printing", is);
  for (const figure of figures.values()) figure.redraw();
}

addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));
