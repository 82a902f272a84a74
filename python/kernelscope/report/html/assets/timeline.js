/* The trace view: a canvas that draws the level of detail that suits what is shown. */

const LANE = 15;
const GAP = 10;
const TRACK_HEAD = 16;
const AXIS = 34;
const STEPS = 16;
const MOST_LANES = 14;

class TimelinePart {
  constructor(part) {
    this.part = part;
    this.levels = part.levels.map((level) => decoded(level, part.tracks.length));
    const whole = this.levels[0];
    this.whole = [whole.start, Math.max(whole.end, whole.start + 1)];
    this.range = [...this.whole];
    /* Where the threads begin, if the host is at another step than the GPU: then steps have a line for each. */
    const threads = part.tracks.findIndex((track) => track.kind !== "stream");
    this.split = threads > 0 && part.steps.some(([start], index) => start !== part.host_starts[index]) ? threads : null;
    this.onThreads = threads === 0;
    this.canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": `${part.title}. ${part.what}` });
    this.details = element("p", { class: "note timeline-details", "aria-live": "polite", text: "Hover over a bar or click it to see its details." });
    this.listen();
    this.section = element("section", { class: "part timeline", id: `part-${part.id}` }, heading(part), this.buttons(), this.canvas, this.details);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    themed.add(this);
  }

  buttons() {
    const make = (text, name, act) => element("button", { type: "button", text, "aria-label": name, title: name, onclick: act });
    const box = element("div", { class: "timeline-buttons" },
      make("+", "Zoom in", () => this.zoom(0.5)), make("−", "Zoom out", () => this.zoom(2)),
      make("◀", "Earlier", () => this.move(-0.4)), make("▶", "Later", () => this.move(0.4)),
      make("All", "Show the whole trace", () => this.show(...this.whole)));
    if (this.part.steps.length > 1) {
      const choice = element("select", { "aria-label": "Go to a step" }, element("option", { value: "", text: "Go to step …" }));
      this.part.steps.forEach(([, , step], index) => choice.append(element("option", { value: index, text: `step ${step}` })));
      choice.addEventListener("change", () => {
        const [start, length] = this.part.steps[Number(choice.value)] || this.whole;
        if (choice.value !== "") this.show(start - length * 0.02, start + length * 1.02);
      });
      box.append(choice);
    }
    return box;
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("keydown", (event) => {
      const act = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), Home: () => this.show(...this.whole) }[event.key];
      if (act) {
        event.preventDefault();
        act();
      }
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 0.7 : 1.4, event.offsetX / canvas.clientWidth);
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.4, event.offsetX / canvas.clientWidth));
    canvas.addEventListener("pointerdown", (event) => { this.dragged = event.clientX; });
    window.addEventListener("pointerup", () => { this.dragged = null; });
    canvas.addEventListener("pointermove", (event) => {
      if (this.dragged !== null && this.dragged !== undefined && event.buttons) {
        this.move((this.dragged - event.clientX) / canvas.clientWidth);
        this.dragged = event.clientX;
      } else this.describe(event.offsetX, event.offsetY);
    });
    canvas.addEventListener("click", (event) => this.describe(event.offsetX, event.offsetY));
  }

  zoom(factor, at = 0.5) {
    const [start, end] = this.range;
    const middle = start + (end - start) * at;
    this.show(middle - (middle - start) * factor, middle + (end - middle) * factor);
  }

  move(share) {
    const step = (this.range[1] - this.range[0]) * share;
    this.show(this.range[0] + step, this.range[1] + step);
  }

  show(start, end) {
    const [first, last] = this.whole;
    const length = Math.min(Math.max(end - start, 200), last - first);
    const from = Math.min(Math.max(start, first), last - length);
    this.range = [from, from + length];
    this.draw();
  }

  /* The coarsest level that is finer than the screen, else the finest that has all that is shown. */
  level() {
    const [start, end] = this.range;
    const wanted = (end - start) / Math.max(this.canvas.clientWidth, 1);
    const fitting = this.levels.filter((level) => level.start <= start && level.end >= end);
    const usable = fitting.length ? fitting : [this.levels[0]];
    const fine = usable.filter((level) => level.pixel <= wanted);
    return fine.length ? fine.reduce((a, b) => (a.pixel > b.pixel ? a : b)) : usable.reduce((a, b) => (a.pixel < b.pixel ? a : b));
  }

  draw() {
    const { canvas, part } = this;
    const width = canvas.clientWidth;
    if (!width) return;
    const lanes = part.tracks.map((track) => Math.min(track.lanes, MOST_LANES));
    this.tops = [];
    let height = AXIS;
    lanes.forEach((count, index) => {
      if (index === this.split) height += STEPS;
      this.tops.push(height + TRACK_HEAD);
      height += TRACK_HEAD + count * LANE + GAP;
    });
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const paint = canvas.getContext("2d");
    paint.scale(ratio, ratio);
    paint.font = "11px system-ui, sans-serif";
    paint.textBaseline = "middle";
    this.shown = this.level();
    this.drawAxis(paint, width, height);
    const colors = part.categories.map((name) => themeColor(`--category-${name}`));
    part.tracks.forEach((track, index) => {
      paint.fillStyle = themeColor("--faint");
      paint.fillText(track.label, 4, this.tops[index] - TRACK_HEAD / 2, width - 8);
      this.drawTrack(paint, index, width, colors);
    });
  }

  drawTrack(paint, track, width, colors) {
    const { shown, part } = this;
    const [start, end] = this.range;
    const scale = width / (end - start);
    const [first, last] = shown.parts[track];
    for (let index = first; index < last; index += 1) {
      const lane = shown.lane[index];
      const from = shown.starts[index];
      if (lane >= MOST_LANES || from > end || from + shown.length[index] < start) continue;
      const x = Math.max((from - start) * scale, -1);
      const right = Math.min((from + shown.length[index] - start) * scale, width + 1);
      const wide = Math.max(right - x, 0.7);
      const y = this.tops[track] + lane * LANE;
      paint.globalAlpha = shown.events[index] > 1 ? 0.35 + 0.65 * Math.min((shown.busy[index] || 0) / 100, 1) : 1;
      paint.fillStyle = colors[shown.category[index]];
      paint.fillRect(x, y, wide > 2 ? wide - 0.5 : wide, LANE - 2);
      if (wide > 34) this.drawName(paint, part, shown.name[index], x, y, wide);
    }
    paint.globalAlpha = 1;
  }

  drawName(paint, part, name, x, y, wide) {
    if (name === null) return;
    const text = (part.short[name] || part.names[name]).slice(0, Math.floor(wide / 6));
    paint.fillStyle = themeColor("--bar-text");
    paint.globalAlpha = 1;
    paint.fillText(text, x + 3, y + LANE / 2 - 0.5, wide - 5);
  }

  drawAxis(paint, width, height) {
    const [start, end] = this.range;
    paint.strokeStyle = themeColor("--grid");
    paint.fillStyle = themeColor("--faint");
    const rough = (end - start) / Math.max(width / 110, 1);
    const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
    for (let at = Math.ceil(start / step) * step; at <= end; at += step) {
      const x = ((at - start) / (end - start)) * width;
      paint.fillRect(x, AXIS - 6, 1, 6);
      paint.fillText(show(Math.round(at), "ns"), x + 3, AXIS - 10);
    }
    if (this.split === null) this.drawSteps(paint, width, 0, height, this.onThreads, "");
    else {
      const top = this.tops[this.split] - TRACK_HEAD - STEPS;
      this.drawSteps(paint, width, 0, top, false, " on the GPU");
      this.drawSteps(paint, width, top, height, true, " on the host");
    }
  }

  /* The lines between steps from one height to another: of the host where annotations begin, else of the GPU. */
  drawSteps(paint, width, top, bottom, ofHost, where) {
    const [start, end] = this.range;
    const scale = width / (end - start);
    let free = -Infinity;
    paint.fillStyle = themeColor("--accent");
    this.part.steps.forEach(([ofGpu, , number], index) => {
      const x = ((ofHost ? this.part.host_starts[index] : ofGpu) - start) * scale;
      if (x < -1 || x > width || x < free) return;
      const text = `step ${number}${where}`;
      paint.globalAlpha = 0.35;
      paint.fillRect(x, top, 1, bottom - top);
      paint.globalAlpha = 1;
      paint.fillText(text, x + 3, top + 8);
      free = x + paint.measureText(text).width + 12;
    });
  }

  /* Says what is drawn at a place. */
  describe(x, y) {
    const { part, shown } = this;
    if (!shown) return;
    const [start, end] = this.range;
    const pixel = (end - start) / this.canvas.clientWidth;
    const at = start + x * pixel;
    const track = this.tops.findIndex((top, index) => y >= top && y < top + Math.min(part.tracks[index].lanes, MOST_LANES) * LANE);
    if (track < 0) return;
    const lane = Math.floor((y - this.tops[track]) / LANE);
    const [first, last] = shown.parts[track];
    for (let index = first; index < last; index += 1) {
      if (shown.lane[index] !== lane || shown.starts[index] > at + pixel || shown.starts[index] + shown.length[index] < at - pixel) continue;
      const name = shown.name[index] === null ? "(no name)" : part.names[shown.name[index]];
      const many = shown.events[index] > 1 ? `${shown.events[index]} events, busy ${shown.busy[index]} %, mostly ` : "";
      const category = part.categories[shown.category[index]];
      this.details.textContent = `${part.tracks[track].label}, ${category}: ${many}${name.slice(0, MOST_TEXT)}; ${show(shown.length[index], "ns")} from ${show(shown.starts[index], "ns")}`;
      return;
    }
  }
}

/* A level with starts instead of their differences, and where each track begins and ends in it. */
function decoded(level, tracks) {
  const count = level.track.length;
  const starts = new Array(count);
  const parts = Array.from({ length: tracks }, () => [0, 0]);
  let at = 0;
  for (let index = 0; index < count; index += 1) {
    at += level.start_steps[index];
    starts[index] = at;
    const part = parts[level.track[index]];
    if (part[1] === 0) part[0] = index;
    part[1] = index + 1;
  }
  return { ...level, starts, parts, pixel: (level.end - level.start) / level.pixels };
}

/* Parts that draw themselves in the colours of the theme. */
const themed = new Set();
