const DATA = JSON.parse(document.getElementById("data").textContent);

/** What the page shows, as its address says: `#theme=dark&axis=hours`. */
const state = { theme: "", axis: "step" };

function show() {
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  else delete document.documentElement.dataset.theme;
  document.getElementById("theme").value = state.theme;
  for (const input of document.querySelectorAll("[name=axis]")) input.checked = input.value === state.axis;
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const charts = [...figure.querySelectorAll(".chart")];
    const shown = charts.find((chart) => chart.dataset.axis === state.axis) ?? charts[0];
    for (const chart of charts) chart.toggleAttribute("hidden", chart !== shown);
    leave(figure);
  }
}

function change(changes) {
  Object.assign(state, changes);
  history.replaceState(null, "", `#${new URLSearchParams(Object.entries(state).filter(([, value]) => value))}`);
  show();
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  state.theme = ["light", "dark"].includes(given.get("theme")) ? given.get("theme") : "";
  state.axis = given.get("axis") === "hours" ? "hours" : "step";
  show();
}

/** The number of the point nearest to x in a rising row of numbers. */
function nearest(xs, x) {
  let low = 0;
  let high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}

/** Puts the cursor of a chart at x, and tells what each curve is at its point nearest to that. */
function pointAt(figure, chart, x) {
  const { low, high, left, right, axis } = chart.dataset;
  const place = Number(left) + ((x - low) / (high - low)) * (right - left);
  const cursor = chart.querySelector(".cursor");
  cursor.setAttribute("transform", `translate(${place - left} 0)`);
  cursor.classList.add("seen");
  figure.x = x;
  const told = DATA.charts[figure.dataset.chart].flatMap((line, run) => {
    const xs = line[axis];
    if (!xs.length || x > xs.at(-1) + (high - low) / 100) return [];
    const point = nearest(xs, x);
    const name = DATA.names.length > 1 ? `${DATA.names[run]}: ` : "";
    return [`${name}${line.value[point]} at step ${line.step[point].toLocaleString("en")}`];
  });
  figure.querySelector(".told").textContent = told.join("; ");
}

function leave(figure) {
  for (const cursor of figure.querySelectorAll(".cursor")) cursor.classList.remove("seen");
  figure.x = undefined;
  const told = figure.querySelector(".told");
  told.textContent = told.dataset.still;
}

/** The x of the point that a key leads to from the cursor, among those of all curves. */
function led(figure, chart, key) {
  const xs = DATA.charts[figure.dataset.chart].flatMap((line) => line[chart.dataset.axis]);
  xs.sort((a, b) => a - b);
  const x = figure.x ?? (key === "ArrowLeft" ? Infinity : -Infinity);
  return {
    ArrowRight: () => xs.find((other) => other > x) ?? xs.at(-1),
    ArrowLeft: () => xs.findLast((other) => other < x) ?? xs[0],
    Home: () => xs[0],
    End: () => xs.at(-1),
  }[key]?.();
}

for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const told = figure.querySelector(".told");
  told.dataset.still = told.textContent;
  for (const chart of figure.querySelectorAll(".chart")) {
    chart.addEventListener("pointermove", (event) => {
      const { low, high, left, right } = chart.dataset;
      const box = chart.getBoundingClientRect();
      const place = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
      const share = Math.min(1, Math.max(0, (place - left) / (right - left)));
      pointAt(figure, chart, Number(low) + share * (high - low));
    });
    chart.addEventListener("pointerleave", () => leave(figure));
    chart.addEventListener("blur", () => leave(figure));
    chart.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const x = led(figure, chart, event.key);
      if (event.key === "Escape") leave(figure);
      if (x === undefined) return;
      event.preventDefault();
      pointAt(figure, chart, x);
    });
  }
}
document.getElementById("theme").addEventListener("change", (event) => change({ theme: event.target.value }));
for (const input of document.querySelectorAll("[name=axis]")) {
  input.addEventListener("change", () => change({ axis: input.value }));
}
addEventListener("hashchange", readAddress);
readAddress();
