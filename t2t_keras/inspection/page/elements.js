/** Creates an element with properties, including `class`, and children: elements or texts. */
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function byId(id) {
  return document.getElementById(id);
}

/** Fills a fieldset with radio buttons or checkboxes that look like a row of buttons. */
function addChoices(fieldset, type, values, changed) {
  for (const { value, text, label } of values) {
    const input = element("input", { type, name: fieldset.id, value });
    if (label) input.setAttribute("aria-label", label);
    input.addEventListener("change", () => changed(value, input.checked));
    fieldset.append(element("label", {}, input, element("span", {}, text)));
  }
  fieldset.hidden = values.length < 2;
}

function setChoices(fieldset, chosen) {
  for (const input of fieldset.querySelectorAll("input")) input.checked = chosen(input.value);
}

/**
 * Makes columns of buttons a single tab stop; the arrow keys, Home and End move inside.
 */
function addArrowKeys(columns) {
  const enter = (c, r) => {
    columns.flat().forEach((button) => (button.tabIndex = -1));
    const button = columns[c][Math.max(0, Math.min(r, columns[c].length - 1))];
    button.tabIndex = 0;
    return button;
  };
  columns.forEach((column, c) =>
    column.forEach((button, r) => {
      button.tabIndex = c + r === 0 ? 0 : -1;
      button.addEventListener("focus", () => enter(c, r));
      button.addEventListener("keydown", (event) => {
        const [toColumn, toRow] = {
          ArrowUp: [c, r - 1],
          ArrowDown: [c, r + 1],
          ArrowLeft: [c - 1, r],
          ArrowRight: [c + 1, r],
          Home: [c, 0],
          End: [c, column.length - 1],
        }[event.key] ?? [-1, 0];
        if (!columns[toColumn]?.[0]?.getClientRects().length || event.ctrlKey || event.altKey || event.metaKey) return;
        event.preventDefault();
        enter(toColumn, toRow).focus();
      });
    }),
  );
}

/** Fades the edges at which an element is cut off, to show that it scrolls sideways. */
function fadeCutEdges(scroller) {
  const fade = () => {
    const hidden = scroller.scrollWidth - scroller.clientWidth;
    scroller.classList.toggle("cut-left", scroller.scrollLeft > 1);
    scroller.classList.toggle("cut-right", scroller.scrollLeft < hidden - 1);
  };
  scroller.addEventListener("scroll", fade);
  new ResizeObserver(fade).observe(scroller);
}

/**
 * Resizes a canvas to `width` x `height` CSS pixels and clears it. Its context draws immediately:
 * if drawing were deferred, ten thousand lines would be redrawn for every part of the page.
 */
function clearCanvas(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.scale(scale, scale);
  return context;
}
