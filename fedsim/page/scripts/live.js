// Follows what goes on: the server sends pieces of the page whenever they change.

/**
 * @typedef {Object} Message
 * @property {boolean} whole Whether nothing that was known before counts any more.
 * @property {Object<string, ?Object>} panels Pieces of the page by name; null: it is gone. See live_looks.py.
 */

const TRY_AGAIN_MS = 3000;
const FOCUSABLE = "a, button, input, summary, [tabindex]";

const known = new Map();
const following = {
  bar: element("progress", { max: 1, "aria-label": "How much is done" }),
  share: element("span", { class: "share" }),
  link: element("span", { role: "status" }),
};
following.element = element("div", { class: "live" }, following.bar, following.share, following.link);

function follow() {
  const source = new EventSource("events");
  source.addEventListener("open", () => tell("live"));
  source.addEventListener("message", (event) => {
    tell("live");
    take(JSON.parse(event.data));
  });
  source.addEventListener("end", () => {
    source.close();
    tell("over");
  });
  source.addEventListener("error", () => {
    tell("lost");
    // The browser tries again by itself, unless it was turned away.
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, TRY_AGAIN_MS);
  });
}

/** @param {Message} message */
function take({ whole, panels }) {
  if (whole) known.clear();
  for (const [name, panel] of Object.entries(panels)) {
    if (panel === null) known.delete(name);
    else known.set(name, panel);
  }
  if (!known.has("outline")) return;
  const y = scrollY;
  const focus = focused();
  if (whole || "outline" in panels) showAnew();
  else Object.entries(panels).forEach(([name, panel]) => replacePiece(name, panel));
  showProgress();
  focus?.();
  scrollTo({ top: y, behavior: "instant" });
}

/** Shows the whole page again, since there are other figures or tables than before. */
function showAnew() {
  const { title, answer, remarks, facts } = known.get("words");
  const { kind, table, sections, tables: names } = known.get("outline");
  figures.forEach((figure) => figure.close());
  figures.clear();
  tables.clear();
  document.body.querySelectorAll(":scope > .skip, :scope > .top, :scope > .layout").forEach((old) => old.remove());
  showPage({
    title, kind, answer, remarks, facts,
    table: table && known.get(`table ${table}`),
    sections: sections.map((section) => ({ ...section, figures: section.figures.map((name) => known.get(`figure ${name}`)) })),
    tables: names.map((name) => known.get(`table ${name}`)),
  });
  parts.answer.after(following.element);
  document.getElementById("facts").hidden = facts.length === 0;
  listContents();
}

function replacePiece(name, panel) {
  if (name === "words") {
    replaceAnswer(panel.answer);
    replaceRemarks(panel.remarks);
    replaceFacts(panel.facts);
  } else if (name.startsWith("table ")) replaceTable(panel);
  else if (name.startsWith("figure ")) replaceFigure(panel);
}

function showProgress() {
  const { state, share } = known.get("progress");
  const percent = share === null ? "" : `${Math.floor(100 * share)} %`;
  if (share === null && state === "running") following.bar.removeAttribute("value");
  else following.bar.value = share ?? 0;
  following.element.dataset.state = state;
  following.share.textContent = percent;
  document.title = [percent, known.get("words").title].filter(Boolean).join(" · ");
}

/** Says whether the page is still followed. */
function tell(link) {
  const state = known.get("progress")?.state;
  const over = { ended: "It has ended; this page stays as it is.", failed: "It has failed; this page stays as it is." };
  const words = {
    live: "Live",
    lost: "Connection lost; trying again.",
    over: over[state] ?? "The page is closed; it stays as it is.",
  };
  following.element.dataset.link = link;
  if (following.link.textContent !== words[link]) following.link.textContent = words[link];
}

/** Returns what gives the keyboard back to the element that has it now, once its surroundings are made anew. */
function focused() {
  const home = document.activeElement?.closest?.("[id]");
  if (!home || document.activeElement === document.body) return null;
  const place = home.matches(":focus") ? -1 : [...home.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
  return () => {
    if (document.activeElement !== document.body) return;
    const again = document.getElementById(home.id);
    (place < 0 ? again : again?.querySelectorAll(FOCUSABLE)[place])?.focus({ preventScroll: true });
  };
}

showPage(DATA.page);
parts.answer.after(following.element);
document.getElementById("facts").hidden = true;
listContents();
follow();
document.documentElement.dataset.ready = "";
