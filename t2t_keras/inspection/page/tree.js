const TREE_FONT = "14px system-ui, sans-serif";
const TREE_LEVEL = 46;

/** Reads `(TOP (NP (NN tea)))` as {label, children}; words are nodes without children. */
function readTree(text) {
  const stack = [{ label: "", children: [] }];
  for (const [piece] of text.matchAll(/\(\s*[^\s()]*|\)|[^\s()]+/g)) {
    if (piece === ")") {
      if (stack.length > 1) stack.pop();
      continue;
    }
    const opens = piece.startsWith("(");
    const node = { label: opens ? piece.slice(1).trim() : piece, children: [], word: !opens };
    stack[stack.length - 1].children.push(node);
    if (opens) stack.push(node);
  }
  return stack[0].children;
}

/** Sets x and depth of each node, with all words on the lowest line; returns width and depth. */
function placeTree(roots) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = TREE_FONT;
  let right = 0;
  let deepest = 0;
  const place = (node, depth) => {
    node.depth = depth;
    deepest = Math.max(deepest, depth);
    const own = context.measureText(node.label).width + 14;
    const left = right;
    node.children.forEach((child) => place(child, depth + 1));
    if (right - left < own) {
      const missing = own - (right - left);
      node.children.forEach((child) => move(child, missing / 2));
      right = left + own;
    }
    const [first, last] = [node.children[0], node.children[node.children.length - 1]];
    node.x = first ? (first.x + last.x) / 2 : left + own / 2;
  };
  const move = (node, distance) => {
    node.x += distance;
    node.children.forEach((child) => move(child, distance));
  };
  roots.forEach((root) => place(root, 0));
  return { width: Math.ceil(right), deepest };
}

/** Draws the parse tree with its words on one line at the bottom, and shows it in brackets as text. */
function showTree(text) {
  const section = byId("tree");
  section.hidden = false;
  const roots = readTree(text);
  const { width, deepest } = placeTree(roots);
  const height = deepest * TREE_LEVEL + 40;
  const svg = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  svg.setAttribute("aria-label", `Parse tree: ${text}`);
  const draw = (node) => {
    const y = 20 + (node.word ? deepest : node.depth) * TREE_LEVEL;
    for (const child of node.children) {
      const below = 20 + (child.word ? deepest : child.depth) * TREE_LEVEL;
      const [y1, y2] = [y + 9, below - 15];
      const line = { x1: node.x, y1, x2: child.x, y2, class: child.word ? "to-word" : "branch" };
      svg.append(svgElement("line", line));
      draw(child);
    }
    const kind = node.word ? "word" : node.children.every((child) => child.word) ? "tag" : "phrase";
    const label = svgElement("text", { x: node.x, y: y + 5, class: kind });
    label.textContent = node.label;
    svg.append(label);
  };
  roots.forEach(draw);
  section.append(
    element("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Parse tree" }, svg),
    element("details", {}, element("summary", {}, "In brackets"), element("code", {}, text)),
  );
}

function svgElement(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
