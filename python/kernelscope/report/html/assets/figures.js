/* Figures: Plotly draws what the page holds, in the colours of the theme. */

const figures = new Set();

/* Replaces every text that names a colour of the style sheet. */
function colored(value) {
  if (typeof value === "string") return value.startsWith("--") ? themeColor(value) : value;
  if (Array.isArray(value)) {
    const first = value.find((item) => item !== null);
    return typeof first === "number" ? value : value.map(colored);
  }
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, colored(item)]));
  }
  return value;
}

function merged(base, extra) {
  const found = { ...base };
  for (const [key, value] of Object.entries(extra)) {
    const both = value && typeof value === "object" && !Array.isArray(value) && base[key] && typeof base[key] === "object";
    found[key] = both ? merged(base[key], value) : value;
  }
  return found;
}

function baseLayout() {
  const axis = {
    gridcolor: themeColor("--grid"),
    linecolor: themeColor("--grid"),
    zerolinecolor: themeColor("--grid"),
    automargin: true,
    title: { standoff: 8 },
  };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: themeColor("--text") },
    margin: { l: 56, r: 16, t: 16, b: 48 },
    hoverlabel: { align: "left", bgcolor: themeColor("--panel"), bordercolor: themeColor("--line"), font: { color: themeColor("--text") } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: themeColor("--faint"), activecolor: themeColor("--accent") },
    xaxis: axis,
    yaxis: axis,
  };
}

function layoutOf(part) {
  return { ...merged(baseLayout(), colored(part.layout)), height: part.height, autosize: true };
}

const FIGURE_OPTIONS = {
  responsive: true,
  displaylogo: false,
  modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
  toImageButtonOptions: { format: "svg" },
};

function figureElement(part) {
  const place = element("div", { class: "figure", role: "figure", "aria-label": `${part.title}. ${part.what}` });
  place.style.minHeight = `${part.height}px`;
  const section = element("section", { class: part.narrow ? "part narrow" : part.wide ? "part wide" : "part", id: `part-${part.id}` }, heading(part), place);
  section.draw = async () => {
    const Plotly = await plotly();
    // The reader may have left meanwhile.
    if (!place.isConnected) return;
    await Plotly.newPlot(place, colored(part.traces), layoutOf(part), FIGURE_OPTIONS);
    if (place.isConnected) figures.add({ place, part });
  };
  return section;
}

/* Draws every figure that is shown anew, in the colours of the theme that now holds. */
async function recolorFigures() {
  if (!figures.size) return;
  const Plotly = await plotly();
  for (const { place, part } of figures) await Plotly.react(place, colored(part.traces), layoutOf(part), FIGURE_OPTIONS);
}
