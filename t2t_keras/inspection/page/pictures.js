/** The smallest weight to draw: for one word, one of a screen's 255 shades; for all words, more. */
const LEAST = 1 / 255;
const LEAST_OF_ALL = 0.02;

/** The maximal total length of all lines, in pixels; drawing it takes about a third of a second. */
const LENGTH_OF_ALL = 3e6;

/** Calls `draw(query, key, weight)` for each weight >= `least` in a matrix, or only those of one word. */
function eachWeight(matrix, { queries, keys }, focus, least, draw) {
  const numKeys = keys.length;
  const only = (side, number) =>
    focus?.side === side ? [focus.index, focus.index + 1] : [0, number];
  const [firstQuery, endQuery] = only("queries", queries.length);
  const [firstKey, endKey] = only("keys", numKeys);
  for (let q = firstQuery; q < endQuery; q++) {
    for (let k = firstKey; k < endKey; k++) {
      const weight = matrix[q * numKeys + k];
      if (weight >= least) draw(q, k, weight);
    }
  }
}

/** The smallest weight to draw for all words; larger if there would be too many lines. */
function leastOfAll(scene) {
  const { width, row, heads, matrices } = scene;
  const lines = [];
  for (const head of heads) {
    eachWeight(matrices[head], scene, null, LEAST_OF_ALL, (q, k, weight) => {
      lines.push([weight, Math.hypot(width, (q - k) * row)]);
    });
  }
  lines.sort((a, b) => b[0] - a[0]);
  let length = 0;
  const first = lines.find((line) => (length += line[1]) > LENGTH_OF_ALL);
  return first ? first[0] : LEAST_OF_ALL;
}

/**
 * Draws lines from queries to keys in the colours of the heads; the opacity is the weight. The lines of
 * different heads are shifted a little, so that equal ones do not hide each other.
 */
function drawLines(context, scene) {
  const { width, row, heads, colours, matrices, focus } = scene;
  const gap = Math.min(2.5, (row - 8) / heads.length);
  const least = focus ? LEAST : leastOfAll(scene);
  const thickness = Math.max(1, Math.min(2, gap));
  heads.forEach((head, n) => {
    const shift = row / 2 + (n - (heads.length - 1) / 2) * gap;
    context.fillStyle = colours[head];
    eachWeight(matrices[head], scene, focus, least, (q, k, weight) => {
      const [from, to] = [q * row + shift, k * row + shift];
      const half = (thickness / 2) * (Math.hypot(width, to - from) / width);
      context.globalAlpha = Math.min(weight, 1);
      context.beginPath(); // filled, which is more than twice as fast as a stroke
      context.moveTo(0, from - half);
      context.lineTo(width, to - half);
      context.lineTo(width, to + half);
      context.lineTo(0, from + half);
      context.fill();
    });
  });
}

/** The height of the key words above a heat map. */
const HEAT_MAP_HEAD = 96;

/** Draws the mean of the heads, queries as rows and keys as columns; pale except for the word in focus. */
function drawHeatMap(context, scene) {
  const { width, row, heads, colours, ink, keys, focus } = scene;
  const cell = width / keys.length;
  context.fillStyle = heads.length === 1 ? colours[heads[0]] : ink;
  eachWeight(scene.mean, scene, null, LEAST, (q, k, weight) => {
    const pale = focus && (focus.side === "queries" ? q : k) !== focus.index;
    context.globalAlpha = Math.sqrt(Math.min(weight, 1)) * (pale ? 0.25 : 1);
    context.fillRect(k * cell, HEAT_MAP_HEAD + q * row, Math.max(cell - 1, 1), row - 1);
  });
  context.globalAlpha = 1;
  context.fillStyle = ink;
  context.font = scene.font;
  const every = Math.ceil(10 / cell);
  keys.forEach((text, k) => {
    const focused = focus?.side === "keys" ? focus.index : null;
    if (focused === null ? k % every : k !== focused) return;
    context.save();
    context.translate((k + 0.5) * cell + 4, HEAT_MAP_HEAD - 6);
    context.rotate(-Math.PI / 2);
    context.fillText(shortened(text, 14), 0, 0, HEAT_MAP_HEAD - 8);
    context.restore();
  });
}

function shortened(text, length) {
  return text.length > length ? text.slice(0, length - 1).replace(/[\ud800-\udbff]$/, "") + "…" : text;
}

/** Draws a matrix with one pixel per weight, for the overview. */
function drawPixels(canvas, matrix, numQueries, numKeys, colour) {
  canvas.width = numKeys;
  canvas.height = numQueries;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
  const pixels = context.createImageData(numKeys, numQueries);
  for (let i = 0; i < matrix.length; i++) {
    pixels.data[4 * i] = red;
    pixels.data[4 * i + 1] = green;
    pixels.data[4 * i + 2] = blue;
    pixels.data[4 * i + 3] = 255 * Math.sqrt(Math.min(matrix[i], 1));
  }
  context.putImageData(pixels, 0, 0);
}
