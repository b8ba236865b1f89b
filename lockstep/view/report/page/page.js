(() => {
  "use strict";
  const report = JSON.parse(document.getElementById("report").textContent);
  const main = document.getElementById("main");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const redraw = [];  // when colours change

  // ---- what all parts are made with

  const add = (parent, name, text = "", attributes = {}) => {
    const element = document.createElement(name);
    element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    parent.append(element);
    return element;
  };
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const colourNames = {
    "computing": "compute", "waiting for data": "data", "waiting for others": "others", "exposed transfer": "transfer",
    "optimizer": "optimizer", "checkpoint": "checkpoint", "other": "rest",
    "step": "compute", "forward": "compute", "data": "data",
  };
  const colourOf = name => colour(colourNames[name] ?? "bar");
  const markText = us => us >= 1e6 ? +(us / 1e6).toFixed(6) + " s" : us >= 1e3 ? +(us / 1e3).toFixed(6) + " ms" : +us.toFixed(6) + " us";
  const timeText = us => us >= 1e6 ? (us / 1e6).toFixed(3) + " s" : us >= 1e3 ? (us / 1e3).toFixed(3) + " ms" : us.toFixed(1) + " us";

  // ---- verdict

  document.title = report.title + " – Lockstep";
  add(main, "h1", report.title);
  add(main, "p", report.sentence, {class: "sentence"});
  const list = (title, kind, items, fill) => {
    if (!items.length) return;
    add(main, "h2", title);
    const parent = add(main, kind);
    for (const item of items) fill(add(parent, "li"), item);
  };
  list("What to do, and what it would win", "ol", report.remedies, (item, remedy) => {
    if (remedy.gain) add(item, "span", remedy.gain + ": ", {class: "gain"});
    if (remedy.why) add(item, "span", remedy.why.charAt(0).toUpperCase() + remedy.why.slice(1) + ". ");
    add(item, "span", remedy.text + ".");
  });
  list("Where each rank was", "ul", report.failure, (item, line) => { item.textContent = line; });
  add(main, "h2", "The run");
  const facts = add(main, "dl");
  for (const [name, value] of report.facts) {
    add(facts, "dt", name);
    add(facts, "dd", value);
  }

  // ---- charts

  const tableOf = (parent, title, columns, rows) => {
    const scroll = add(parent, "div", "", {class: "scroll", tabindex: "0", role: "region", "aria-label": title});
    const table = add(scroll, "table");
    const head = add(add(table, "thead"), "tr");
    for (const column of columns) add(head, "th", column, {scope: "col"});
    const body = add(table, "tbody");
    for (const row of rows) {
      const line = add(body, "tr");
      row.forEach((cell, i) => add(line, i ? "td" : "th", cell, i ? {} : {scope: "row"}));
    }
  };

  const usedSeries = chart => chart.series.filter(one => one.values.some(value => value > 0));
  const datasetsOf = chart => {
    if (chart.kind !== "waterfall") {
      return usedSeries(chart).map(one => ({label: one.name, data: one.values, backgroundColor: colourOf(one.name), maxBarThickness: 40}));
    }
    let sum = 0;
    const values = chart.series[0].values;
    const data = values.map((value, i) => {
      if (i === values.length - 1) return [0, value];
      sum += value;
      return [sum - value, sum];
    });
    const colours = chart.labels.map(label => label === "achieved step" ? colour("ink") : colourOf(label));
    return [{label: chart.series[0].name, data, backgroundColor: colours, maxBarThickness: 40}];
  };

  const draw = (canvas, chart) => {
    const axis = stacked => ({
      stacked, ticks: {color: colour("soft")}, grid: {color: colour("line")},
    });
    const stacked = chart.kind === "stacked";
    const length = ({raw}) => Array.isArray(raw) ? raw[1] - raw[0] : raw;
    return new Chart(canvas, {
      type: "bar",
      data: {labels: chart.labels, datasets: datasetsOf(chart)},
      options: {
        indexAxis: "y", maintainAspectRatio: false, animation: false, responsive: true,
        scales: {
          x: {...axis(stacked), title: {display: true, text: chart.unit, color: colour("soft")}},
          y: {...axis(stacked), grid: {display: false}},
        },
        plugins: {
          legend: {display: stacked || chart.series.length > 1, position: "bottom", labels: {color: colour("ink"), boxWidth: 12}},
          tooltip: {callbacks: {label: item => `${item.dataset.label}: ${length(item).toFixed(3)} ${chart.unit}`}},
        },
      },
    });
  };

  if (report.charts.length) {
    add(main, "h2", "Pictures");
    const charts = add(main, "div", "", {class: "charts"});
    for (const chart of report.charts) {
      const figure = add(charts, "figure");
      add(figure, "figcaption", `${chart.title} (${chart.unit})`);
      const place = add(figure, "div", "", {class: "chart"});
      place.style.height = Math.max(12, 6 + 1.8 * chart.labels.length) + "rem";
      const canvas = add(place, "canvas", "", {role: "img", "aria-label": chart.title + "; the numbers follow as a table"});
      let drawn = draw(canvas, chart);
      redraw.push(() => { drawn.destroy(); drawn = draw(canvas, chart); });
      const numbers = add(figure, "details");
      add(numbers, "summary", "Numbers");
      const used = usedSeries(chart);
      tableOf(numbers, chart.title, ["", ...used.map(one => one.name)],
              chart.labels.map((label, i) => [label, ...used.map(one => one.values[i].toFixed(3))]));
    }
  }

  // ---- timeline

  // A row's events are one list of numbers: name, begin, length, first part, bytes, number.
  const width = 6;
  const rowHeight = 18, rankHeight = 22, axisHeight = 24;

  class TimelineView {
    constructor(timeline) {
      this.timeline = timeline;
      this.whole = Math.max(timeline.end, 1);
      this.from = 0;
      this.to = this.whole;
      this.filter = "";
      this.rank = "";
      this.chosen = null;
      add(main, "h2", "Timeline");
      if (timeline.note) add(main, "p", timeline.note, {class: "note"});
      add(main, "p", "Ctrl and wheel or + and - zoom, drag or arrows move, 0 shows all, n and p go from call to call.", {class: "note", id: "keys"});
      this.makeControls();
      this.box = add(main, "div", "", {class: "timeline"});
      this.canvas = add(this.box, "canvas", "", {tabindex: "0", role: "application", "aria-label": "Timeline of all ranks", "aria-describedby": "keys"});
      this.details = add(main, "p", "", {class: "details", "aria-live": "polite"});
      this.makeKey();
      this.listen();
      this.layOut();
    }

    makeControls() {
      const controls = add(main, "div", "", {class: "controls"});
      const button = (text, act) => add(controls, "button", text, {type: "button"}).addEventListener("click", act);
      button("Zoom in", () => this.zoom(0.5));
      button("Zoom out", () => this.zoom(2));
      button("Left", () => this.move(-0.25));
      button("Right", () => this.move(0.25));
      button("All", () => this.show(0, this.whole));
      const filter = add(add(controls, "label", "Only names with"), "input", "", {type: "search"});
      filter.addEventListener("input", () => { this.filter = filter.value.toLowerCase(); this.draw(); });
      const ranks = add(add(controls, "label", "Rank"), "select");
      add(ranks, "option", "all", {value: ""});
      for (const {rank} of this.timeline.ranks) add(ranks, "option", String(rank), {value: String(rank)});
      ranks.addEventListener("change", () => { this.rank = ranks.value; this.layOut(); });
    }

    makeKey() {
      const key = add(main, "ul", "", {class: "key"});
      for (const [text, name] of [["step until its last gradient, forward", "compute"], ["exposed communication, transfer", "transfer"],
                                  ["waiting for others", "others"], ["waiting for data", "data"], ["other ranges", "bar"]]) {
        const item = add(key, "li");
        const patch = add(item, "canvas", "", {"aria-hidden": "true"});
        const paint = () => { patch.style.background = colour(name); };
        paint();
        redraw.push(paint);
        add(item, "span", text);
      }
    }

    layOut() {
      this.rows = [];
      let y = axisHeight;
      for (const rank of this.timeline.ranks) {
        if (this.rank && String(rank.rank) !== this.rank) continue;
        this.rows.push({title: `rank ${rank.rank}${rank.host ? " on " + rank.host : ""}`, y});
        y += rankHeight;
        for (const row of rank.rows) {
          this.rows.push({rank: rank.rank, kind: row.kind, events: row.events, y});
          y += rowHeight;
        }
      }
      this.height = y + 6;
      this.draw();
    }

    show(from, to) {
      const length = Math.min(Math.max(to - from, 10), this.whole);
      this.from = Math.min(Math.max(from, 0), this.whole - length);
      this.to = this.from + length;
      this.draw();
    }
    zoom(factor, around = (this.from + this.to) / 2) {
      this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
    }
    move(share) {
      const by = (this.to - this.from) * share;
      this.show(this.from + by, this.to + by);
    }

    x(time) { return (time - this.from) / (this.to - this.from) * this.canvas.clientWidth; }
    time(x) { return this.from + x / this.canvas.clientWidth * (this.to - this.from); }

    colours(kind, name) {
      if (kind === "training") return [colour("compute"), colour("transfer")];
      if (kind === "calls") return [colour("others"), colour("transfer")];
      return [colourOf(name), colourOf(name)];
    }
    isShown(name) { return !this.filter || name.toLowerCase().includes(this.filter); }
    nameAt(row, i) { return this.timeline.names[row.events[i]]; }

    /// The first event of a row that begins at `time` or later.
    firstAfter(events, time) {
      let low = 0, high = events.length / width;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (events[middle * width + 1] < time) low = middle + 1; else high = middle;
      }
      return low * width;
    }

    draw() {
      const ratio = devicePixelRatio || 1, wide = this.canvas.clientWidth;
      this.canvas.width = wide * ratio;
      this.canvas.height = this.height * ratio;
      this.canvas.style.height = this.height + "px";
      const context = this.canvas.getContext("2d");
      context.scale(ratio, ratio);
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      const marks = this.marks(wide);
      this.drawGrid(context, marks);
      const cache = new Map();
      for (const row of this.rows) {
        if (row.title) {
          context.fillStyle = colour("soft");
          context.fillText(row.title, 6, row.y + rankHeight / 2 + 2);
        } else {
          this.drawRow(context, row, cache);
        }
      }
      this.drawAxis(context, marks, wide);
    }

    /// Round times, far enough from each other for their text.
    marks(wide) {
      const least = (this.to - this.from) * 110 / wide;
      const power = 10 ** Math.floor(Math.log10(least));
      const apart = [1, 2, 5, 10].map(times => times * power).find(one => one >= least);
      const marks = [];
      for (let i = Math.ceil(this.from / apart); i * apart <= this.to; ++i) marks.push(i * apart);
      return marks;
    }

    drawGrid(context, marks) {
      context.strokeStyle = colour("line");
      for (const mark of marks) {
        const x = Math.round(this.x(mark)) + 0.5;
        context.beginPath();
        context.moveTo(x, 0);
        context.lineTo(x, this.height);
        context.stroke();
      }
    }

    /// In sight also where the rows are scrolled.
    drawAxis(context, marks, wide) {
      const top = this.box.scrollTop;
      context.fillStyle = colour("panel");
      context.fillRect(0, top, wide, axisHeight - 3);
      context.fillStyle = colour("soft");
      for (const mark of marks) {
        const text = markText(mark / 10), x = this.x(mark) + 5;
        if (x + context.measureText(text).width <= wide) context.fillText(text, x, top + 12);
      }
    }

    drawRow(context, row, cache) {
      const events = row.events;
      const ink = colour("ground");
      let painted = -1;
      for (let i = Math.max(0, this.firstAfter(events, this.from) - width); i < events.length && events[i + 1] <= this.to; i += width) {
        const name = this.timeline.names[events[i]];
        if (!this.isShown(name)) continue;
        const left = this.x(events[i + 1]), right = Math.max(this.x(events[i + 1] + events[i + 2]), left + 1);
        if (right < 0 || right <= painted) continue;
        painted = right;
        const key = row.kind + name;
        if (!cache.has(key)) cache.set(key, this.colours(row.kind, name));
        const [first, second] = cache.get(key);
        const part = this.x(events[i + 1] + events[i + 3]);
        context.fillStyle = second;
        context.fillRect(left, row.y, right - left, rowHeight - 3);
        if (row.kind !== "program") {
          context.fillStyle = first;
          context.fillRect(left, row.y, Math.min(part, right) - left, rowHeight - 3);
        }
        if (right - left > 60) {
          context.save();
          context.beginPath();
          context.rect(left, row.y, right - left - 2, rowHeight);
          context.clip();
          context.fillStyle = ink;
          context.fillText(row.kind === "program" ? name : `${name} ${events[i + 5]}`, Math.max(left, 0) + 4, row.y + rowHeight / 2 - 1);
          context.restore();
        }
        if (this.chosen && this.chosen.row.events === events && this.chosen.i === i) {
          context.strokeStyle = colour("ink");
          context.lineWidth = 2;
          context.strokeRect(left, row.y, right - left, rowHeight - 3);
          context.lineWidth = 1;
        }
      }
    }

    describe(row, i) {
      const [, begin, length, part, bytes, number] = row.events.slice(i, i + width);
      const name = this.nameAt(row, i);
      const parts = [`rank ${row.rank}: ${name}${row.kind === "program" ? "" : " " + number}, at ${timeText(begin / 10)}, for ${timeText(length / 10)}`];
      if (row.kind === "calls") parts.push(`waiting for others ${timeText(part / 10)}`, `transfer ${timeText((length - part) / 10)}`, `${bytes} bytes`);
      if (row.kind === "training") parts.push(`until the last gradient ${timeText(part / 10)}`, `after it ${timeText((length - part) / 10)}`, `${bytes} bytes of gradients`);
      return parts.join(", ");
    }

    at(x, y) {
      const row = this.rows.find(one => !one.title && y >= one.y && y < one.y + rowHeight);
      if (!row) return null;
      const time = this.time(x), slack = (this.to - this.from) / this.canvas.clientWidth * 2;
      for (let i = this.firstAfter(row.events, time + slack) - width, looked = 0; i >= 0 && looked < 50; i -= width, ++looked) {
        const end = row.events[i + 1] + row.events[i + 2];
        if (end + slack >= time && this.isShown(this.nameAt(row, i))) return {row, i};
      }
      return null;
    }

    /// By keys: the next call or range of the row that was chosen last.
    step(by) {
      if (!this.chosen) {
        const row = this.rows.find(one => !one.title && one.events.length);
        if (!row) return;
        this.chosen = {row, i: this.firstAfter(row.events, this.from) - (by > 0 ? width : 0)};
      }
      const {row} = this.chosen;
      let i = this.chosen.i + by * width;
      while (i >= 0 && i < row.events.length && !this.isShown(this.nameAt(row, i))) i += by * width;
      if (i < 0 || i >= row.events.length) return;
      this.chosen = {row, i};
      const begin = row.events[i + 1];
      if (begin < this.from || begin > this.to) this.show(begin - (this.to - this.from) / 2, begin + (this.to - this.from) / 2);
      this.tell();
    }

    /// Of what a key has chosen.
    tell() {
      const {row, i} = this.chosen;
      this.details.textContent = this.describe(row, i);
      const seen = this.box.clientHeight - rowHeight;
      this.box.scrollTop = Math.min(Math.max(this.box.scrollTop, row.y - seen), row.y - axisHeight - rankHeight);
      this.draw();
    }

    changeRow(by) {
      const rows = this.rows.filter(one => !one.title && one.events.length);
      const now = this.chosen ? rows.indexOf(this.chosen.row) : -by;
      const row = rows[now + by];
      if (!row) return;
      const at = this.chosen ? this.chosen.row.events[this.chosen.i + 1] : this.from;
      this.chosen = {row, i: Math.min(this.firstAfter(row.events, at), row.events.length - width)};
      this.tell();
    }

    listen() {
      const keys = {
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), "0": () => this.show(0, this.whole),
        ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2),
        ArrowUp: () => this.changeRow(-1), ArrowDown: () => this.changeRow(1),
        n: () => this.step(1), p: () => this.step(-1),
      };
      this.canvas.addEventListener("keydown", event => {
        if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
        event.preventDefault();
        keys[event.key]();
      });
      this.canvas.addEventListener("wheel", event => {
        if (!event.ctrlKey && !event.metaKey) return;  // the page's, or the rows'
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.time(event.offsetX));
      }, {passive: false});
      let drag = null;
      this.canvas.addEventListener("pointerdown", event => {
        drag = {x: event.offsetX, y: event.clientY};
        this.canvas.setPointerCapture(event.pointerId);
      });
      for (const end of ["pointerup", "pointercancel"]) this.canvas.addEventListener(end, () => { drag = null; });
      this.canvas.addEventListener("pointermove", event => {
        if (drag !== null) {
          const by = this.time(drag.x) - this.time(event.offsetX);
          this.box.scrollTop += drag.y - event.clientY;
          drag = {x: event.offsetX, y: event.clientY};
          this.show(this.from + by, this.to + by);
          return;
        }
        const found = this.at(event.offsetX, event.offsetY);
        if (!found) return;
        this.chosen = found;
        this.details.textContent = this.describe(found.row, found.i);
        this.draw();
      });
      this.box.addEventListener("scroll", () => this.draw());
      new ResizeObserver(() => this.draw()).observe(this.box);
      redraw.push(() => this.draw());
    }
  }
  if (report.timeline) new TimelineView(report.timeline);

  // ---- tables

  for (const table of report.tables) {
    add(main, "h2", table.title);
    if (table.note) add(main, "p", table.note, {class: "note"});
    tableOf(main, table.title, table.columns, table.rows);
  }
  list("What is missing", "ul", report.notes, (item, note) => { item.textContent = note; });

  dark.addEventListener("change", () => { for (const one of redraw) one(); });
})();
