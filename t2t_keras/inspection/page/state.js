/**
 * What is shown, layers, heads and words counted from 0. It is in the address as well
 * (#attention=encoder&layer=4&heads=0,5&word=12 and so on), so that a picture can be linked to and
 * made again.
 */
const state = {
  kind: KINDS_THERE[0],
  layer: 0,
  heads: new Set(),
  unit: HAS_SUBWORDS ? "words" : "subwords",
  view: "lines",
  theme: "",
  /** The word that was clicked: {side: "queries" or "keys", index}, or null. */
  kept: null,
};

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const oneOf = (name, allowed, otherwise) =>
    allowed.includes(given.get(name)) ? given.get(name) : otherwise;
  state.kind = oneOf("attention", KINDS_THERE, state.kind);
  state.unit = HAS_SUBWORDS ? oneOf("text", ["words", "subwords"], state.unit) : state.unit;
  state.view = oneOf("view", ["lines", "heat-map"], "lines");
  state.theme = oneOf("theme", ["light", "dark"], "");
  const { layers, ...texts } = weightsOf(state.kind, state.unit);
  const number = (name, most) => {
    const read = parseInt(given.get(name));
    return read >= 0 && read < most ? read : null;
  };
  state.layer = number("layer", layers.length) ?? layers.length - 1;
  const all = layers[state.layer].map((_, head) => head);
  const named = given.has("heads") ? given.get("heads").split(",").map(Number) : all;
  state.heads = new Set(all.filter((head) => named.includes(head)));
  const side = given.has("looked-at") ? "keys" : "queries";
  const index = number(side === "keys" ? "looked-at" : "word", texts[side].length);
  state.kept = index === null ? null : { side, index };
}

function writeAddress() {
  const pairs = [
    ["attention", state.kind],
    ["layer", state.layer],
    ["heads", [...state.heads].sort((a, b) => a - b)],
    ["text", state.unit],
    ["view", state.view],
  ];
  if (state.theme) pairs.push(["theme", state.theme]);
  if (state.kept) {
    pairs.push([state.kept.side === "keys" ? "looked-at" : "word", state.kept.index]);
  }
  history.replaceState(null, "", "#" + pairs.map((pair) => pair.join("=")).join("&"));
}
