// Elements. Texts become text nodes, so nothing that a scenario says is ever read as markup.

/**
 * Returns a new element.
 * @param {string} tag
 * @param {Object<string, unknown>} attributes Functions listen to the event of their name; null, undefined and
 *   false are left out, and true is an attribute without a value.
 * @param {...(Node|string|number|null)} children
 */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  setAttributes(made, attributes);
  append(made, children);
  return made;
}

/** Returns a new element of a drawing. */
function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(made, attributes);
  append(made, children);
  return made;
}

function setAttributes(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, String(value));
  }
}

function append(made, children) {
  for (const child of children) {
    if (child !== null && child !== undefined) made.append(child instanceof Node ? child : String(child));
  }
}

/** Calls back when an element is shown with another width than now; returns what ends that. */
function onWidth(host, callback) {
  let last = host.clientWidth;
  const observer = new ResizeObserver(() => {
    if (host.clientWidth > 0 && Math.abs(host.clientWidth - last) >= 1) callback((last = host.clientWidth));
  });
  observer.observe(host);
  return () => observer.disconnect();
}
