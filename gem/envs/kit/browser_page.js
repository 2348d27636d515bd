// Runs in each page before its own scripts: a clock that moves only when it is told to, and `__gem`, which reads
// the page as numbered nodes and finds places in them. Values of an agent come as arguments, never as script.
(() => {
  const RealDate = Date, realFrame = window.requestAnimationFrame.bind(window);
  const realTimeout = window.setTimeout.bind(window);
  const START = RealDate.UTC(2024, 0, 1, 12);
  const timers = new Map();
  let now = 0, serial = 0;

  const add = (run, wait, args, period) => {
    if (typeof run !== "function") return 0;
    timers.set(++serial, { run, due: now + Math.max(1, +wait || 0), args, period });
    return serial;
  };
  const remove = (id) => { timers.delete(id); };
  window.setTimeout = (run, wait, ...args) => add(run, wait, args, 0);
  window.setInterval = (run, wait, ...args) => add(run, wait, args, Math.max(4, +wait || 0));
  window.requestAnimationFrame = (run) => add(run, 16, null, 0);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = remove;
  performance.now = () => now;
  window.Date = new Proxy(RealDate, {
    construct: (target, args, made) => Reflect.construct(target, args.length ? args : [START + now], made),
    apply: () => new RealDate(START + now).toString(),
    get: (target, key) => (key === "now" ? () => START + now : Reflect.get(target, key)),
  });
  const clickable = new WeakSet(), listen = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (kind, ...rest) {
    if (["click", "mousedown", "mouseup", "pointerdown"].includes(kind) && this instanceof Element) clickable.add(this);
    return listen.call(this, kind, ...rest);
  };
  listen.call(window, "submit", (event) => event.preventDefault()); // a form would load the page again
  window.open = () => null;

  // Let `milliseconds` of the page's time pass: its timers run in their order.
  const advance = async (milliseconds) => {
    const end = now + milliseconds;
    for (let runs = 0; runs < 5000; runs++) {
      let next = null, first = 0;
      for (const [id, timer] of timers) if (timer.due <= end && (!next || timer.due < next.due)) { next = timer; first = id; }
      if (!next) break;
      now = Math.max(now, next.due);
      if (next.period) next.due = now + next.period; else timers.delete(first);
      try { next.run(...(next.args || [now])); } catch (error) { console.error(String(error)); }
      await null;
    }
    now = end;
  };
  // Wait until what the browser itself does between two pictures is done, such as events of scrolling.
  const settle = () => new Promise((done) => {
    const late = realTimeout(done, 200); // no picture is drawn of a page in the background
    realFrame(() => realFrame(() => realTimeout(done, 0)));
  });

  // Load the pictures that styles name, which have no size before: one that comes with the mouse would come late.
  const pictures = [];
  const preload = async () => {
    const named = [...document.querySelectorAll("style")].flatMap((style) =>
      [...style.textContent.matchAll(/url\(\s*["']?([^"')]+)["']?\s*\)/g)].map((match) => match[1]));
    for (const name of new Set(named)) { const picture = new Image(); picture.src = name; pictures.push(picture); }
    await Promise.all(pictures.map((picture) => picture.decode().catch(() => null)));
  };

  // Wait until the pictures of the page have their size.
  const load = () => Promise.all([...document.images].filter((each) => !each.complete).map((each) => each.decode().catch(() => null)));

  // -- what is on the page

  const SHAPES = new Set(["rect", "circle", "ellipse", "line", "polygon", "polyline", "path", "text", "tspan", "image"]);
  const ACTIVE = new Set(["button", "input", "a", "select", "textarea", "canvas", "img", "area", "summary"]);
  const HIDDEN = new Set(["script", "style", "noscript", "template", "head", "option", "optgroup", "defs", "title", "desc"]);
  const clean = (text) => text.replace(/\s+/g, " ").trim();
  const hex = (colour) => {
    const parts = colour.match(/[\d.]+/g);
    if (!parts || parts.length < 3 || (parts.length > 3 && +parts[3] === 0)) return "";
    return "#" + parts.slice(0, 3).map((part) => (+part).toString(16).padStart(2, "0")).join("");
  };
  let elements = [];

  const describe = (element, tag, style, box, leaf) => {
    const node = { tag };
    const shape = element instanceof SVGElement;
    if (tag === "input") node.type = element.type;
    if (element.id && (tag === "input" || tag === "textarea" || tag === "select")) node.id = element.id;
    for (const name of ["role", "title", "placeholder", "alt"]) {
      const value = element.getAttribute(name);
      if (value) node[name] = clean(value);
    }
    if (["input", "textarea"].includes(tag)) {
      if (element.type === "checkbox" || element.type === "radio") node.checked = element.checked;
      else node.value = element.value;
    }
    if (tag === "select") {
      node.options = [...element.options].map((option) => clean(option.text));
      node.chosen = [...element.selectedOptions].map((option) => clean(option.text));
    }
    if (element.isContentEditable && !(element.parentElement && element.parentElement.isContentEditable)) node.editable = true;
    if (element.disabled) node.disabled = true;
    if (element.readOnly) node.readonly = true;
    if (element === document.activeElement && element !== document.body) node.focused = true;
    if (leaf) {
      const names = element.getAttribute("class");
      if (names) node.classes = clean(names);
      else if (element.id) node.id = element.id;
    }
    if (shape && tag !== "svg") node.colour = hex(style.fill) || hex(style.stroke);
    else if (leaf && !ACTIVE.has(tag)) node.colour = hex(style.backgroundColor);
    if ((shape && tag !== "svg") || tag === "canvas" || (leaf && !["input", "textarea", "select"].includes(tag)))
      node.box = [box.left, box.top, box.width, box.height].map(Math.round);
    if (element.scrollHeight > element.clientHeight + 1 && element.clientHeight
      && (tag === "textarea" || ["auto", "scroll"].includes(style.overflowY)))
      node.scroll = [Math.round(element.scrollTop), element.scrollHeight - element.clientHeight];
    return node;
  };

  const walk = (element, depth, found, skip) => {
    const tag = element.tagName.toLowerCase();
    if (HIDDEN.has(tag) || (skip && element.matches(skip))) return;
    const style = getComputedStyle(element);
    if (style.display === "none") return;
    const box = element.getBoundingClientRect();
    const shape = element instanceof SVGElement;
    const visible = style.visibility !== "hidden" && (box.width > 1 || box.height > 1)
      && (shape || (box.width > 0 && box.height > 0));
    const children = tag === "select" || tag === "textarea" ? [] : [...element.childNodes];
    const texts = children.filter((child) => child.nodeType === 3 && clean(child.data));
    const inner = children.filter((child) => child.nodeType === 1 && child.tagName !== "BR");
    const leaf = !texts.length && !inner.length;
    const mixed = texts.length > 0 && inner.length > 0;
    const listed = visible && element !== document.body && (texts.length > 0 || ACTIVE.has(tag) || (SHAPES.has(tag) && shape)
      || element.onclick || element.hasAttribute("tabindex") || element.isContentEditable
      || (leaf && (style.backgroundImage !== "none" || hex(style.backgroundColor) || element.className))
      || ["auto", "scroll"].includes(style.overflowY) && element.scrollHeight > element.clientHeight + 1);
    const list = (bare) => {
      const node = describe(element, tag, style, box, bare);
      elements.push(element);
      node.ref = elements.length;
      node.depth = depth;
      if (texts.length && !mixed) node.text = clean(texts.map((text) => text.data).join(" "));
      found.push(node);
    };
    const icon = ["button", "a"].includes(tag) && !texts.length && !clean(element.textContent);
    if (listed) list(leaf || icon);
    if (icon) return;
    const below = depth + (listed ? 1 : 0), before = found.length;
    for (const child of children) {
      if (child.nodeType === 1) walk(child, below, found, skip);
      else if (mixed && visible && child.nodeType === 3 && clean(child.data)) found.push({ depth: below, text: clean(child.data) });
    }
    if (!listed && visible && clickable.has(element) && found.length === before && element !== document.body) list(true);
  };

  const read = (skip) => {
    elements = [];
    const found = [];
    walk(document.body, 0, found, skip);
    return found;
  };

  // -- places

  const element = (ref) => {
    const found = elements[ref - 1];
    return found && found.isConnected ? found : null;
  };
  const show = (target) => {
    const box = target.getBoundingClientRect();
    if (box.top < 0 || box.left < 0 || box.bottom > innerHeight || box.right > innerWidth || inside(target))
      target.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
  };
  const inside = (target) => {
    for (let at = target.parentElement; at && at !== document.body; at = at.parentElement)
      if (at.scrollHeight > at.clientHeight + 1 && getComputedStyle(at).overflowY !== "visible") return true;
    return false;
  };
  // Return a point of a node in the window: `x` and `y` from its upper left corner, or one where it can be seen.
  const point = (ref, x, y) => {
    const target = element(ref);
    if (!target) return null;
    show(target);
    const box = target.getClientRects()[0] || target.getBoundingClientRect();
    if (x !== null) return [box.left + x, box.top + y];
    const parts = [0.5, 0.1, 0.9, 0.3, 0.7, 0.02, 0.98]; // the middle, or another part that nothing covers
    const free = parts.flatMap((across) => parts.map((down) => [box.left + box.width * across, box.top + box.height * down]))
      .find((place) => target.contains(document.elementFromPoint(...place)));
    return free || [box.left + box.width / 2, box.top + box.height / 2];
  };

  const DIRECT = new Set(["date", "time", "month", "week", "datetime-local", "color", "range"]);
  // Make a field ready for typing: "type", or "done" if its kind takes the value at once, or what is wrong.
  const field = (ref, text) => {
    const target = element(ref);
    if (!target) return "gone";
    const input = target instanceof HTMLInputElement;
    const typed = target instanceof HTMLTextAreaElement
      || (input && !["checkbox", "radio", "button", "submit", "reset", "image", "file", "hidden"].includes(target.type));
    if (!typed && !target.isContentEditable) return "no field";
    if (target.disabled || target.readOnly) return "locked";
    show(target);
    target.focus();
    if (input && DIRECT.has(target.type)) {
      Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(target, text);
      for (const name of ["input", "change"]) target.dispatchEvent(new Event(name, { bubbles: true }));
      return "done";
    }
    if (typed) target.select();
    else getSelection().selectAllChildren(target);
    return "type";
  };

  // Choose an option: "done", or what is wrong; of other nodes, the two ends of a text in the window.
  const choose = (ref, text) => {
    const target = element(ref);
    if (!target) return "gone";
    if (target instanceof HTMLSelectElement) {
      const option = [...target.options].find((each) => clean(each.text) === clean(text));
      if (!option) return "no option";
      target.focus();
      if (target.multiple) option.selected = true;
      else target.selectedIndex = option.index;
      for (const name of ["input", "change"]) target.dispatchEvent(new Event(name, { bubbles: true }));
      return "done";
    }
    show(target);
    const pieces = document.createTreeWalker(target, NodeFilter.SHOW_TEXT), places = [];
    let all = "";
    for (let piece; (piece = pieces.nextNode());)
      for (let at = 0; at < piece.data.length; at++)
        if (!/\s/.test(piece.data[at]) || !/\s$/.test(all)) { all += /\s/.test(piece.data[at]) ? " " : piece.data[at]; places.push([piece, at]); }
    const begin = all.indexOf(clean(text));
    if (begin < 0 || !clean(text)) return "no text";
    const edge = ([piece, at]) => { const range = document.createRange(); range.setStart(piece, at); range.setEnd(piece, at + 1); return range.getBoundingClientRect(); };
    const first = edge(places[begin]), last = edge(places[begin + clean(text).length - 1]);
    return [first.left + 0.5, first.top + first.height / 2, last.right - 0.2, last.top + last.height / 2];
  };

  // Make the page forget where the agent was, before its own script begins the next episode.
  const rest = async () => {
    if (document.activeElement) document.activeElement.blur();
    getSelection().removeAllRanges();
    await advance(3000);
    for (const each of document.querySelectorAll("*")) if (each.scrollTop) each.scrollTop = 0;
  };

  // Draw what the page draws from a seed: the generator mulberry32 in the place of Math.random.
  const seed = (number) => {
    let state = (number ^ (number / 2 ** 32)) >>> 0;
    Math.random = () => {
      state = (state + 0x6d2b79f5) | 0;
      let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
      mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
    };
  };

  const scroll = (ref, pixels) => {
    const target = element(ref);
    if (!target) return false;
    target.scrollTop += pixels;
    return true;
  };

  Object.defineProperty(window, "__gem", { value: { preload, load, advance, settle, read, point, field, choose, scroll, rest, seed } });
})();
