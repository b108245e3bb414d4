/** The word under the pointer, and the one with the keyboard focus; the form is that of `state.kept`. */
const inFocus = { pointed: null, reached: null };

/** The buttons of the words, by side, and the picture without any word in focus. */
let buttons = { queries: [], keys: [] };
let whole = null;
let drawnWidth = 0;

/** Everything that a picture depends on. */
function sceneNow() {
  const { queries, keys, layers } = weightsOf(state.kind, state.unit);
  const matrices = layers[state.layer];
  const heads = [...state.heads].sort((a, b) => a - b);
  const style = getComputedStyle(byId("picture"));
  return {
    layer: state.layer,
    queries,
    keys,
    matrices,
    heads,
    mean: meanOf(heads.map((head) => matrices[head]), queries.length * keys.length),
    colours: matrices.map((_, head) => colourOf(head)),
    ink: style.color,
    font: `13px ${style.fontFamily}`,
    width: byId("picture").clientWidth,
    row: buttons.queries[0].getBoundingClientRect().height,
    focus: inFocus.pointed ?? inFocus.reached ?? state.kept,
  };
}

function meanOf(matrices, length) {
  const mean = new Float32Array(length);
  for (const matrix of matrices) {
    for (let i = 0; i < length; i++) mean[i] += matrix[i] / matrices.length;
  }
  return mean;
}

/** The colour of a head: hues are evenly spaced, and every other one is darker. */
function colourOf(head) {
  return getComputedStyle(byId("heads").querySelectorAll("label")[head]).borderBottomColor;
}

function paintHead(made, head, number) {
  made.classList.add("head");
  made.style.setProperty("--hue", String(Math.round(25 + (360 * head) / number)));
  made.style.setProperty("--tone", head % 2 ? "1" : "-1");
}

/** Rebuilds what depends on the kind of attention, on words or subwords, or on the colours. */
function layOut() {
  document.documentElement.dataset.theme = state.theme;
  inFocus.pointed = inFocus.reached = null;
  const { queries, keys, layers } = weightsOf(state.kind, state.unit);
  const kind = KINDS[state.kind];
  byId("about").textContent = kind.about;
  byId("queries-title").textContent = `Queries: ${kind.queries}`;
  byId("keys-title").textContent = `Keys: ${kind.keys}`;
  state.layer = Math.min(state.layer, layers.length - 1);
  byId("layers").querySelectorAll("label").forEach((label) => label.remove());
  const numbers = layers.map((_, layer) => ({ value: String(layer), text: String(layer) }));
  addChoices(byId("layers"), "radio", numbers, (layer) => change({ layer: Number(layer) }));
  addHeads(layers[0].length);
  buttons = { queries: addWords("queries", queries), keys: addWords("keys", keys) };
  addArrowKeys([buttons.queries, buttons.keys]);
  addOverview();
}

function addHeads(number) {
  const fieldset = byId("heads");
  fieldset.querySelectorAll("label, button").forEach((old) => old.remove());
  const values = Array.from({ length: number }, (_, head) => ({
    value: String(head),
    text: String(head),
    label: `head ${head}`,
  }));
  addChoices(fieldset, "checkbox", values, (head, on) => {
    const heads = new Set(state.heads);
    if (on) heads.add(Number(head));
    else heads.delete(Number(head));
    change({ heads });
  });
  fieldset.querySelectorAll("label").forEach((label, head) => paintHead(label, head, number));
  const all = values.map((_, head) => head);
  for (const [text, heads] of [["all", all], ["none", []]]) {
    const button = element("button", { type: "button" }, text);
    button.addEventListener("click", () => change({ heads: new Set(heads) }));
    fieldset.append(button);
  }
  state.heads = new Set([...state.heads].filter((head) => head < number));
}

function addWords(side, texts) {
  const made = texts.map((text, index) => {
    const word = element("bdi", {}, text);
    const button = element("button", { type: "button", title: text }, word, element("small"));
    const here = { side, index };
    button.addEventListener("pointerenter", (event) => {
      if (event.pointerType === "mouse") setFocus({ pointed: here });
    });
    button.addEventListener("pointerleave", () => setFocus({ pointed: null }));
    button.addEventListener("focus", () => {
      if (button.matches(":focus-visible")) setFocus({ reached: here });
    });
    button.addEventListener("blur", () => setFocus({ reached: null }));
    button.addEventListener("click", () => change({ kept: same(state.kept, here) ? null : here }));
    return button;
  });
  byId(side).replaceChildren(...made.map((button) => element("li", {}, button)));
  return made;
}

function same(a, b) {
  return a?.side === b?.side && a?.index === b?.index;
}

function setFocus(changes) {
  Object.assign(inFocus, changes);
  soon(draw);
}

/** Small pictures of all heads of all layers, each a button that selects its head. */
function addOverview() {
  const { queries, keys, layers } = weightsOf(state.kind, state.unit);
  const cells = layers.map((heads, layer) =>
    heads.map((matrix, head) => {
      const canvas = element("canvas", { "aria-hidden": "true" });
      const label = `layer ${layer}, head ${head}`;
      const button = element("button", { type: "button", "aria-label": label, title: label }, canvas);
      paintHead(button, head, heads.length);
      button.addEventListener("click", () => change({ layer, heads: new Set([head]) }));
      return button;
    }),
  );
  const header = element("tr", {}, element("td"));
  cells[0].forEach((_, head) => {
    header.append(element("th", { scope: "col", "aria-label": `head ${head}` }, `${head}`));
  });
  const rows = cells.map((buttonsOfLayer, layer) => {
    const name = element("th", { scope: "row", "aria-label": `layer ${layer}` }, `${layer}`);
    return element("tr", {}, name, ...buttonsOfLayer.map((button) => element("td", {}, button)));
  });
  byId("overview").replaceChildren(
    element("thead", {}, header),
    element("tbody", {}, ...rows),
  );
  addArrowKeys(cells[0].map((_, head) => cells.map((layer) => layer[head])));
  cells.forEach((heads, layer) =>
    heads.forEach((button, head) => {
      const colour = getComputedStyle(button).borderBottomColor;
      drawPixels(button.firstChild, layers[layer][head], queries.length, keys.length, colour);
    }),
  );
}

/** Draws the picture and, for the word in focus, its lines and its numbers. */
function draw() {
  const scene = sceneNow();
  const { focus } = scene;
  for (const side of ["queries", "keys"]) {
    buttons[side].forEach((button, index) => {
      const chosen = focus?.side === side && focus.index === index;
      button.classList.toggle("chosen", chosen);
      button.setAttribute("aria-pressed", String(same(state.kept, { side, index })));
    });
  }
  showShares(scene);
  showNumbers(scene);
  drawPicture(scene);
}

/** Colours each word of the other side: a band for each head, whose strength is the weight. */
function showShares(scene) {
  const { focus, heads, colours } = scene;
  const others = focus && (focus.side === "queries" ? "keys" : "queries");
  for (const button of [...buttons.queries, ...buttons.keys]) {
    button.style.background = "";
    button.lastChild.textContent = "";
    button.classList.remove("looked-at", "faint");
  }
  if (!focus || !heads.length) return;
  for (const { index, mean, weights } of numbersOf(scene, focus)) {
    const button = buttons[others][index];
    button.classList.toggle("faint", Math.max(...weights) < 0.05);
    if (mean >= 0.01) button.lastChild.textContent = mean.toFixed(2);
    const bands = weights.map((weight, n) => {
      const edges = `${(100 * n) / heads.length}% ${(100 * (n + 1)) / heads.length}%`;
      return `${tinted(colours[heads[n]], weight)} ${edges}`;
    });
    button.style.background = `linear-gradient(90deg, ${bands.join(", ")})`;
  }
}

function drawPicture(scene) {
  const { width, row, queries, keys, focus } = scene;
  const heatMap = state.view === "heat-map";
  const height = heatMap
    ? HEAT_MAP_HEAD + row * queries.length
    : row * Math.max(queries.length, keys.length);
  const paint = heatMap ? drawHeatMap : drawLines;
  drawnWidth = width;
  if (focus || !width) {
    paint(clearCanvas(byId("picture"), width, height), scene);
    return;
  }
  if (!whole) {
    whole = document.createElement("canvas");
    paint(clearCanvas(whole, width, height), scene);
  }
  clearCanvas(byId("picture"), width, height).drawImage(whole, 0, 0, width, height);
}

/** Applies a change of the state; changing the unit or the kind deselects the chosen word. */
function change(changes) {
  const otherWords = "kind" in changes || "unit" in changes;
  Object.assign(state, changes, otherWords ? { kept: null } : {});
  if (otherWords || "theme" in changes || "view" in changes) layOut();
  show();
  writeAddress();
}

function show() {
  byId("theme").value = state.theme;
  byId("attention-title").textContent = `${KINDS[state.kind].name} attention, layer ${state.layer}`;
  byId("figure").classList.toggle("heat-map", state.view === "heat-map");
  setChoices(byId("kinds"), (value) => value === state.kind);
  setChoices(byId("units"), (value) => value === state.unit);
  setChoices(byId("views"), (value) => value === state.view);
  setChoices(byId("layers"), (value) => Number(value) === state.layer);
  setChoices(byId("heads"), (value) => state.heads.has(Number(value)));
  byId("overview").querySelectorAll("tbody tr").forEach((row, layer) =>
    row.querySelectorAll("button").forEach((button, head) => {
      const shown = layer === state.layer && state.heads.has(head);
      button.setAttribute("aria-pressed", String(shown));
    }),
  );
  redraw();
}

/** Redraws all lines after a change of colours, sizes or weights. */
function redraw() {
  whole = null;
  draw();
}

/** Calls a function once before the next frame, no matter how often it is requested. */
function soon(work) {
  if (soon.asked) return;
  soon.asked = true;
  requestAnimationFrame(() => {
    soon.asked = false;
    work();
  });
}

/** In the heat map the pointer selects a query; in the words above it, a key. */
function pointAtHeatMap(event) {
  if (state.view !== "heat-map") return;
  const { left, top, width, height } = byId("picture").getBoundingClientRect();
  const { queries, keys } = weightsOf(state.kind, state.unit);
  const y = event.clientY - top;
  const [side, share, texts] =
    y < HEAT_MAP_HEAD
      ? ["keys", (event.clientX - left) / width, keys]
      : ["queries", (y - HEAT_MAP_HEAD) / (height - HEAT_MAP_HEAD), queries];
  const index = Math.min(texts.length - 1, Math.max(0, Math.floor(share * texts.length)));
  if (!same(inFocus.pointed, { side, index })) setFocus({ pointed: { side, index } });
}

function start() {
  const kinds = AVAILABLE_KINDS.map((kind) => ({ value: kind, text: KINDS[kind].name }));
  addChoices(byId("kinds"), "radio", kinds, (kind) => change({ kind }));
  const units = [{ value: "words", text: "Words" }, { value: "subwords", text: "Subwords" }];
  addChoices(byId("units"), "radio", HAS_SUBWORDS ? units : [], (unit) => change({ unit }));
  const views = [{ value: "lines", text: "Lines" }, { value: "heat-map", text: "Heat map" }];
  addChoices(byId("views"), "radio", views, (view) => change({ view }));
  byId("theme").addEventListener("change", (event) => change({ theme: event.target.value }));
  byId("picture").addEventListener("pointermove", pointAtHeatMap);
  byId("picture").addEventListener("pointerleave", () => setFocus({ pointed: null }));
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") change({ kept: null });
  });
  addEventListener("hashchange", restart);
  new ResizeObserver(() => {
    if (byId("picture").clientWidth !== drawnWidth) soon(redraw);
  }).observe(byId("figure"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restart);
  for (const [name, text] of [["Source", DATA.source.text], ["Target", DATA.target.text]]) {
    byId("texts").append(element("dt", {}, name), element("dd", {}, element("bdi", {}, text)));
  }
  if (DATA.tree) showTree(DATA.tree);
  document.querySelectorAll(".scroll").forEach(fadeCutEdges);
  restart();
}

function restart() {
  readAddress();
  layOut();
  show();
}

start();
