// Builds elements and brings a page up to date. Whatever comes from a run goes in as text: nothing here parses HTML, and
// the page's policy would refuse it.

const SVG = "http://www.w3.org/2000/svg";
const STAND_IN = "stand-in";
const LIVE = new Set(["value", "checked", "disabled", "open", "selected"]);
const HANDLERS = ["onclick", "onsubmit", "oninput", "onchange", "onkeydown", "ontoggle"];

/** An element. `on…` props are handlers, null and false leave an attribute out, `key` names it among its siblings. */
export const h = (tag, props, ...children) => made(document.createElement(tag), props, children);

/** An element of an SVG picture. */
export const svg = (tag, props, ...children) => made(document.createElementNS(SVG, tag), props, children);

function made(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) set(node, name, value);
  node.append(...nodes(children));
  return node;
}

function set(node, name, value) {
  if (name === "key" || name === "keep" || name.startsWith("on")) node[name] = value;
  else if (LIVE.has(name) && name in node) node[name] = value;
  else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/** A child that is only built again when its version has changed. Until then a stand-in takes its place. */
export const lazily = (key, version, build) => Object.assign(document.createElement(STAND_IN), { key, version, build });

/** Makes the children of `parent` these, keeping what is there: focus, selection and what was unfolded stay. */
export function render(parent, ...children) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.key !== undefined) keyed.set(child.key, child);
  let at = parent.firstChild;
  for (const wanted of nodes(children)) {
    const old = counterpart(wanted, at, keyed);
    const node = brought(old, wanted);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function counterpart(wanted, at, keyed) {
  if (wanted.key !== undefined) {
    const old = keyed.get(wanted.key);
    keyed.delete(wanted.key);
    return old;
  }
  return at && at.key === undefined && at.nodeName === wanted.nodeName ? at : undefined;
}

/** The node to show: the old one brought up to date, or a new one. */
function brought(old, wanted) {
  if (wanted.build) {
    if (old && old.version === wanted.version) return old;
    return Object.assign(brought(old, built(wanted)), { version: wanted.version });
  }
  if (!old || old.nodeName !== wanted.nodeName) return whole(wanted);
  if (old !== wanted) patch(old, wanted);
  return old;
}

const built = (standIn) => Object.assign(standIn.build(), { key: standIn.key });

/** A tree that is new, without its stand-ins. */
function whole(node) {
  for (const standIn of node.querySelectorAll?.(STAND_IN) ?? []) {
    standIn.replaceWith(Object.assign(built(standIn), { version: standIn.version }));
  }
  return node;
}

function patch(old, wanted) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return;
  }
  if (old.keep) return; // a form that a person fills in
  for (const { name } of [...old.attributes]) if (!wanted.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of wanted.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) if (old[name] !== wanted[name]) old[name] = wanted[name];
  if ("value" in old && old !== document.activeElement && old.value !== wanted.value) old.value = wanted.value;
  if ("disabled" in old) old.disabled = wanted.disabled;
  render(old, ...wanted.childNodes);
}

/** Tells whoever listens to the page instead of seeing it. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Calls `work` before the next picture is drawn, once however often it was asked for. */
export function eachFrame(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}
