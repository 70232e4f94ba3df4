// Draws a chart with plotly for who points at it or asks for it: numbers on hover, zoom, arrow keys.
// Until then, and without this file, the drawing that came with the page stands: plotly weighs more
// than all pages together, and many who look need no number.

const MARKS = { canary: "diamond", control: "circle", failed: "circle-open" };
const NAMES = { slow: "slow", very: "of these very slow", failed: "failed", canary: "canary", control: "beside it" };
const dark = matchMedia("(prefers-color-scheme: dark)");
let library = null;

function load() {
  const { dataset } = document.querySelector("meta[name=plotly]");
  // Plotly writes its style into elements with these names and makes them if they are not there.
  // The policy forbids inline style, so the first is an empty file and the others, of maps that we
  // do not draw, are taken.
  for (const id of dataset.taken.split(" ")) add("meta", { id });
  library ??= Promise.all([
    added("link", { rel: "stylesheet", id: "plotly.js-style-global", href: dataset.style }),
    added("script", { src: dataset.script }),
  ]).then(() => globalThis.Plotly);
  return library;
}

function add(name, values) {
  if (values.id && document.getElementById(values.id)) return document.getElementById(values.id);
  const element = Object.assign(document.createElement(name), values);
  document.head.append(element);
  return element;
}

function added(name, values) {
  return new Promise((done, failed) => {
    const element = add(name, values);
    element.addEventListener("load", done);
    element.addEventListener("error", failed);
  });
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function trace({ role, points }, isOfWeeks) {
  const common = {
    name: NAMES[role],
    x: points.map((one) => one.x),
    y: points.map((one) => one.y),
    customdata: points.map((one) => one.says),
    hovertemplate: "%{customdata}<extra></extra>",
  };
  if (isOfWeeks && role !== "failed") return { ...common, type: "bar", marker: { color: color(role) } };
  return {
    ...common,
    type: "scatter",
    mode: isOfWeeks ? "lines+markers" : "markers",
    line: { color: color("ink"), width: 1, dash: "dot" },
    marker: {
      size: 8,
      color: points.map((one) => color(one.is_slow ? "bad" : isOfWeeks ? "ink" : role)),
      symbol: points.map((one) => (one.is_slow ? "x" : MARKS[role])),
    },
  };
}

// As many as there is room for, and level.
function scale(plot, width) {
  const room = Math.max(2, Math.floor(width / 110));
  if (!plot.is_of_weeks) return { type: "date", nticks: room, tickformat: "%H:%M:%S", tickangle: 0 };
  const weeks = [...new Set(plot.series.flatMap(({ points }) => points.map((one) => one.x)))].sort();
  const each = Math.ceil(weeks.length / (room * 2));
  const shown = weeks.filter((_, index) => (weeks.length - 1 - index) % each === 0);
  return { type: "category", categoryorder: "array", categoryarray: weeks, tickvals: shown, ticktext: shown.map((one) => one.slice(5)), tickangle: 0, fixedrange: true };
}

function layout(plot, { width, height }) {
  const quiet = { color: color("quiet"), gridcolor: color("line"), zerolinecolor: color("line"), linecolor: color("line") };
  const floor = { type: "line", xref: "paper", x0: 0, x1: 1, y0: plot.floor, y1: plot.floor, line: { color: color("bad"), width: 1, dash: "dash" } };
  const marks = plot.marks.map(({ x }) => ({ type: "line", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { color: color("quiet"), width: 1, dash: "dot" } }));
  return {
    height,
    uirevision: "keep", // a zoom outlives an update
    margin: { l: 44, r: 12, t: 18, b: 32 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: color("quiet") },
    xaxis: { ...quiet, ...scale(plot, width), showgrid: false },
    yaxis: { ...quiet, tickformat: plot.y_format, fixedrange: true, rangemode: plot.is_of_weeks ? "tozero" : "normal" },
    barmode: "overlay",
    bargap: 0.35,
    showlegend: false,
    dragmode: plot.is_of_weeks || matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hovermode: "closest",
    hoverlabel: { bgcolor: color("card"), bordercolor: color("quiet"), align: "left", font: { color: color("ink"), size: 13 } },
    shapes: plot.floor === null ? marks : [floor, ...marks],
    annotations: plot.marks.map(({ x, says }) => ({ x, text: says, yref: "paper", y: 1, yanchor: "bottom", xanchor: "left", showarrow: false, font: { color: color("quiet"), size: 11 } })),
  };
}

class Explored {
  constructor(root) {
    this.root = root;
    this.index = -1;
    this.button = Object.assign(document.createElement("button"), { type: "button", className: "explore", textContent: "Look closer" });
    this.button.addEventListener("click", () => this.show().then(() => this.host?.focus()));
    root.append(this.button);
    root.addEventListener("pointerover", ({ target }) => target.closest?.(".chart") && this.show());
    root.addEventListener("swapped", () => this.host && this.draw());
    dark.addEventListener("change", () => this.host && this.draw());
  }

  plot() {
    const text = this.root.querySelector("script[type='application/json']")?.textContent;
    return text ? JSON.parse(text) : null;
  }

  async show() {
    this.shown ??= this.begin().catch(() => {
      // Without it the drawing stays; the next one who asks tries again.
      this.root.removeAttribute("aria-busy");
      this.shown = null;
    });
    return this.shown;
  }

  async begin() {
    const drawing = this.root.querySelector(".chart");
    if (!drawing) return;
    this.root.setAttribute("aria-busy", "true");
    this.room = drawing.getBoundingClientRect();
    this.plotly = await load();
    this.host = document.createElement("div");
    Object.assign(this.host, { className: "plot", tabIndex: 0, role: "group", ariaLabel: `${drawing.getAttribute("aria-label")}. Arrow keys go from point to point.` });
    this.told = Object.assign(document.createElement("p"), { className: "hidden", role: "status" });
    this.host.addEventListener("keydown", (event) => this.step(event));
    this.root.querySelector("[data-drawn]").before(this.host, this.told);
    await this.draw();
    this.root.dataset.explored = "";
    this.button.hidden = true;
    this.root.removeAttribute("aria-busy");
  }

  draw() {
    this.drawn = this.plot() ?? this.drawn;
    const traces = this.drawn.series.map((one) => trace(one, this.drawn.is_of_weeks));
    return this.plotly.react(this.host, traces, layout(this.drawn, this.room), { displayModeBar: false, responsive: true });
  }

  step(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") this.plotly.Fx.unhover(this.host);
    if (!by) return;
    event.preventDefault();
    const points = this.drawn.series.flatMap((series, curveNumber) => series.points.map((one, pointNumber) => ({ ...one, curveNumber, pointNumber })));
    points.sort((one, other) => (one.x < other.x ? -1 : Number(one.x > other.x)));
    this.index = (this.index + by + points.length) % points.length;
    const { says, curveNumber, pointNumber } = points[this.index];
    this.plotly.Fx.hover(this.host, [{ curveNumber, pointNumber }]);
    this.told.textContent = new DOMParser().parseFromString(says.replaceAll("<br>", "; "), "text/html").body.textContent;
  }
}

for (const root of document.querySelectorAll("[data-explore]")) new Explored(root);
