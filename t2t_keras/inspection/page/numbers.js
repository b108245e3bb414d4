/** The weights between one word and the others: [{index, text, mean, weights by head}], greatest first. */
function numbersOf(scene, focus) {
  const { queries, keys, heads, matrices, mean } = scene;
  const others = focus.side === "queries" ? keys : queries;
  const place = (other) =>
    focus.side === "queries" ? focus.index * keys.length + other : other * keys.length + focus.index;
  const rows = others.map((text, index) => ({
    index,
    text,
    mean: mean[place(index)],
    weights: heads.map((head) => matrices[head][place(index)]),
  }));
  return rows.sort((a, b) => b.mean - a.mean || a.index - b.index);
}

/** The word's greatest weights in one sentence, for screen readers. */
function sentenceOf(scene, focus, rows) {
  const word = shortened(scene[focus.side][focus.index], 40);
  const verb = focus.side === "queries" ? "looks at" : "is looked at by";
  const greatest = rows.slice(0, 3).filter((row) => row.mean >= 0.005);
  const listed = greatest.map((row) => `${shortened(row.text, 40)} ${row.mean.toFixed(2)}`).join(", ");
  const heads = scene.heads.length === 1 ? `head ${scene.heads[0]}` : "mean of the heads shown";
  return `“${word}” ${verb} ${listed || "nothing"} (layer ${scene.layer}, ${heads})`;
}

/** Shows the weights of the word in focus as a sentence and a table, or how to choose a word. */
function showNumbers(scene) {
  const { focus, heads, colours } = scene;
  byId("numbers").classList.toggle("empty", !focus);
  if (!focus || !heads.length) {
    byId("summary").textContent = heads.length
      ? "Choose a word to see its weights."
      : "No head is chosen.";
    byId("table").replaceChildren();
    return;
  }
  const rows = numbersOf(scene, focus);
  byId("summary").textContent = sentenceOf(scene, focus, rows);
  const title = (text, label) => element("th", { scope: "col", "aria-label": label }, text);
  const header = element("tr", {}, title("word", "word"), title("mean", "mean of the heads"));
  for (const head of heads) {
    const cell = title(String(head), `head ${head}`);
    cell.style.boxShadow = `inset 0 -3px ${colours[head]}`;
    header.append(cell);
  }
  const body = element("tbody");
  for (const row of rows) {
    const name = element("th", { scope: "row", title: row.text });
    name.append(element("small", {}, String(row.index)), element("bdi", {}, row.text));
    const line = element("tr", {}, name, numberCell(row.mean, scene.ink));
    row.weights.forEach((weight, n) => line.append(numberCell(weight, colours[heads[n]])));
    body.append(line);
  }
  byId("table").replaceChildren(element("table", {}, element("thead", {}, header), body));
  byId("table").scrollTop = 0;
}

function numberCell(weight, colour) {
  const cell = element("td", {}, weight.toFixed(2));
  if (weight < 0.005) cell.className = "nothing";
  else cell.style.background = tinted(colour, weight);
  return cell;
}

/** A colour whose strength is a weight, for the background of readable text. */
function tinted(colour, weight) {
  return `color-mix(in srgb, ${colour} ${(60 * Math.min(weight, 1)).toFixed(1)}%, transparent)`;
}
