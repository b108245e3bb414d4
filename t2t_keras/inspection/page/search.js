/** The fate of a candidate: "ended", "kept" or "dropped". */
function fateOf(candidate) {
  return candidate.kept ? (candidate.ended ? "ended" : "kept") : "dropped";
}

/** Returns the candidate that another extends. */
function originOf(steps, step, candidate) {
  return steps[step - 1]?.candidates.filter((other) => fateOf(other) === "kept")[candidate.parent];
}

/** Returns a candidate and its ancestors. */
function pathTo(steps, step, candidate) {
  const path = new Set();
  for (; candidate; candidate = originOf(steps, step--, candidate)) path.add(candidate);
  return path;
}

/** The step and candidate of the search's result, or null. */
function resultOf({ steps, finished }) {
  const [best] = finished;
  const step = best ? best.step - 1 : steps.length - 1;
  const candidate = steps[step]?.candidates.find((other) =>
    best ? other.ended && other.text === best.text : other.kept,
  );
  return candidate ? { step, candidate } : null;
}

/** Shows a beam search: a column of candidates per step, the finished hypotheses, and why it stopped. */
function showSearch(search) {
  const section = byId("search");
  const { steps, finished } = search;
  section.hidden = false;
  const buttons = new Map();
  const status = element("p", { role: "status" });
  const result = resultOf(search);
  const light = (chosen) => {
    const path = chosen ? pathTo(steps, chosen.step, chosen.candidate) : new Set();
    for (const [candidate, button] of buttons) button.classList.toggle("path", path.has(candidate));
    status.textContent = chosen ? sentenceOfCandidate(chosen) : "";
  };

  const most = Math.max(0, ...steps.map(({ candidates }) => candidates.length));
  const header = element("tr", {}, element("th", { scope: "col" }, "rank"));
  steps.forEach((_, step) => {
    header.append(element("th", { scope: "col", "aria-label": `step ${step + 1}` }, `${step + 1}`));
  });
  const body = element("tbody");
  const columns = steps.map(() => []);
  for (let rank = 0; rank < most; rank++) {
    const row = element("tr", {}, element("th", { scope: "row" }, `${rank + 1}`));
    steps.forEach(({ candidates }, step) => {
      const candidate = candidates[rank];
      const cell = element("td");
      if (candidate) {
        const button = candidateButton(candidate);
        const chosen = { step, candidate };
        for (const name of ["pointerenter", "focus", "click"]) {
          button.addEventListener(name, () => light(chosen));
        }
        for (const name of ["pointerleave", "blur"]) {
          button.addEventListener(name, () => light(result));
        }
        buttons.set(candidate, button);
        columns[step].push(button);
        cell.append(button);
      }
      row.append(cell);
    });
    body.append(row);
  }
  addArrowKeys(columns);
  const table = element("table", { class: "steps" }, element("thead", {}, header), body);
  section.append(
    element(
      "p",
      {},
      `${search.beam_size} hypotheses side by side, length penalty alpha ${search.alpha}. `,
      element("strong", {}, `Stopped after ${steps.length} ${steps.length === 1 ? "step" : "steps"}. `),
      search.stopped,
    ),
    searchLegend(),
    element("div", { class: "scroll", role: "region", "aria-label": "Candidates by step" }, table),
    status,
    finishedTable(finished),
  );
  light(result);
}

function candidateButton(candidate) {
  const fate = fateOf(candidate);
  return element(
    "button",
    { type: "button", class: `candidate ${fate}`, title: candidate.text },
    element("bdi", {}, candidate.token),
    element("small", {}, candidate.score.toFixed(2)),
    element("span", { class: "unseen" }, fate),
  );
}

function sentenceOfCandidate({ step, candidate }) {
  return (
    `Step ${step + 1}, ${fateOf(candidate)}: “${candidate.text}”, ` +
    `log p ${candidate.log_p.toFixed(3)}, score ${candidate.score.toFixed(3)}`
  );
}

function searchLegend() {
  const sample = (fate, text) => element("span", { class: `candidate ${fate}` }, text);
  return element(
    "p",
    { class: "hint" },
    "Each column is a step: its candidates with their scores, best first. ",
    sample("kept", "kept"),
    " stays in the beam, ",
    sample("ended", "ended"),
    " is a finished output, ",
    sample("dropped", "dropped"),
    " is discarded. Outlined: the path to the result, or to the candidate pointed at.",
  );
}

function finishedTable(finished) {
  if (!finished.length) return element("p", {}, "No hypothesis was finished.");
  const header = ["score", "step", "finished"].map((text) => element("th", { scope: "col" }, text));
  const rows = finished.map(({ text, score, step }) =>
    element(
      "tr",
      {},
      element("td", {}, score.toFixed(3)),
      element("td", {}, String(step)),
      element("td", {}, element("bdi", {}, text)),
    ),
  );
  const table = element("table", { class: "finished" });
  table.append(element("thead", {}, element("tr", {}, ...header)), element("tbody", {}, ...rows));
  return element("div", { class: "scroll" }, table);
}
