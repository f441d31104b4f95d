// Light and dark: what the system says, unless the reader chooses.

const THEMES = [
  ["", "Auto"],
  ["light", "Light"],
  ["dark", "Dark"],
];
const themeListeners = new Set();
let probe = null;

/** Calls back whenever colours change; returns what ends that. */
function onTheme(callback) {
  themeListeners.add(callback);
  return () => themeListeners.delete(callback);
}

/** Returns a colour of the style sheets as canvases can use it. */
function colour(name, opacity = 1) {
  probe ??= document.body.appendChild(element("span", { hidden: true }));
  probe.style.color =
    opacity === 1 ? `var(--${name})` : `color-mix(in srgb, var(--${name}) ${opacity * 100}%, transparent)`;
  return getComputedStyle(probe).color;
}

/** Returns a colour of the palette by its number. */
function colourAt(number, opacity = 1) {
  return colour(`c${number}`, opacity);
}

/** Returns the dashes of the n-th line of a figure, in pixels; lines beyond the eighth have other dashes. */
function dashAt(number) {
  const all = DATA.dashes;
  return all[(number + Math.floor(number / 8)) % all.length].map((length) => length * 1.5);
}

/** Returns the switch of the theme. */
function themeSwitch() {
  let chosen = "";
  try {
    chosen = localStorage.getItem("fedsim-theme") ?? "";
  } catch {
    /* a page in a file may have no storage: then nothing is remembered */
  }
  const choose = (theme) => {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("fedsim-theme", theme);
    } catch {
      /* likewise */
    }
    colorsChanged();
  };
  document.documentElement.dataset.theme = chosen;
  return element(
    "fieldset",
    { class: "theme" },
    element("legend", { class: "unseen" }, "Colours"),
    ...THEMES.map(([theme, name]) =>
      element(
        "label",
        {},
        element("input", {
          type: "radio",
          name: "theme",
          value: theme,
          checked: theme === chosen,
          change: () => choose(theme),
        }),
        element("span", {}, name),
      ),
    ),
  );
}

function colorsChanged() {
  for (const callback of [...themeListeners]) callback();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", colorsChanged);
