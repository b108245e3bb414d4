"use strict";

/** The data of the page; weights are integers in units of 1 / 10,000. */
const DATA = JSON.parse(document.getElementById("data").textContent);

/** The kinds of attention: which side looks (queries) and which is looked at (keys). */
const KINDS = {
  encdec: {
    name: "Encoder-decoder",
    queries: "target",
    keys: "source",
    about: "To predict each target word, the decoder looks at these source words.",
  },
  encoder: {
    name: "Encoder",
    queries: "source",
    keys: "source",
    about: "Each source word looks at the words of the source, itself included.",
  },
  decoder: {
    name: "Decoder",
    queries: "target",
    keys: "target",
    about:
      "To predict each target word, the decoder looks at the words before it. A position is named " +
      "after the word that it predicts; its input is the word before.",
  },
};

/** The kinds of attention that the data has. */
const AVAILABLE_KINDS = Object.keys(KINDS).filter((kind) => DATA.attention[kind]);

/** Whether some word has several tokens, so that words and subwords differ. */
const HAS_SUBWORDS = [DATA.source, DATA.target].some(
  (side) => side.word_texts.length < side.tokens.length,
);

/** The texts of a side by words or subwords, and the index of each token's text. */
function textsOf(side, unit) {
  const { tokens, words, word_texts } = DATA[side];
  if (unit === "words") return { texts: word_texts, places: words };
  return { texts: tokens, places: tokens.map((_, i) => i) };
}

/**
 * The weights of a kind between words or subwords: the texts of queries and keys, and for each layer and
 * head a matrix, queries by keys, flat. The weights of a word are summed over its tokens as a key and
 * averaged as a query, so those of each query still sum to 1.
 */
function weightsOf(kind, unit) {
  return (weightsSoFar[`${kind} ${unit}`] ??= newWeightsOf(kind, unit));
}

const weightsSoFar = {};

function newWeightsOf(kind, unit) {
  const queries = textsOf(KINDS[kind].queries, unit);
  const keys = textsOf(KINDS[kind].keys, unit);
  const parts = queries.texts.map((_, i) => queries.places.filter((place) => place === i).length);
  const layers = DATA.attention[kind].map((heads) =>
    heads.map((rows) => {
      const matrix = new Float32Array(queries.texts.length * keys.texts.length);
      rows.forEach((row, i) => {
        const q = queries.places[i];
        row.forEach((weight, j) => {
          matrix[q * keys.texts.length + keys.places[j]] += weight / 10000 / parts[q];
        });
      });
      return matrix;
    }),
  );
  return { queries: queries.texts, keys: keys.texts, layers };
}

/**
 * What is shown; layers, heads and words count from 0. The address contains it, too
 * (#attention=encoder&layer=4&heads=0,5&word=12 and so on), so a picture can be linked to and
 * reproduced.
 */
const state = {
  kind: AVAILABLE_KINDS[0],
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
  state.kind = oneOf("attention", AVAILABLE_KINDS, state.kind);
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
  const named = given.has("heads") ? given.get("heads").split(",").map(parseFloat) : all;
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
