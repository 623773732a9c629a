// Draws the charts of a page from the numbers that the server gives, with uPlot.
"use strict";

(() => {
  const drawn = new WeakMap();
  const UNITS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

  function colour(name) {
    const probe = document.createElement("span");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  const paint = (style) => colour(style.replace("pane-", "").replace("retracted", "upstream"));

  function duration(seconds) {
    if (seconds == null) return "";
    if (seconds === 0) return "0s";
    if (Math.abs(seconds) < 1) return `${+(seconds * 1000).toPrecision(3)}ms`;
    let rest = Math.round(Math.abs(seconds) * (Math.abs(seconds) < 10 ? 10 : 1)) / (Math.abs(seconds) < 10 ? 10 : 1);
    if (rest < 10) return `${seconds < 0 ? "-" : ""}${rest}s`;
    const parts = [];
    for (const [size, unit] of UNITS) {
      const count = Math.floor(rest / size);
      if (count && parts.length < 2) parts.push(count + unit);
      rest -= count * size;
    }
    return (seconds < 0 ? "-" : "") + parts.join("");
  }

  function bytes(count) {
    if (count == null) return "";
    let unit = 0;
    while (Math.abs(count) >= 1000 && unit < 4) { count /= 1000; unit += 1; }
    return `${+count.toPrecision(3)} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
  }

  const simulated = (seconds) => Math.abs(seconds) < 366 * 86400;
  const iso = (seconds) => new Date(seconds * 1000).toISOString();

  function clock(seconds) {
    if (seconds == null) return "";
    const text = iso(seconds);
    const time = text.slice(11, seconds % 1 ? 23 : 19);
    return simulated(seconds) ? time : `${text.slice(5, 10)} ${time}`;
  }

  const count = (value) => (value == null ? "" : Math.round(value).toLocaleString("en"));
  const NICE = [1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800,
    21600, 43200, 86400, 172800, 604800, 1209600, 2419200, 7862400, 31449600];
  const margin = (plot, low, high) => {
    if (low == null) return [0, 1];
    const room = (high - low) * 0.02 || 1;
    return [low - room, high + room];
  };
  const ratio = (value) => (value == null ? "" : value.toFixed(1));
  const FORMATS = { event: clock, duration, bytes, count, ratio };

  const steps = uPlot.paths.stepped({ align: 1 });
  const straight = uPlot.paths.linear();
  const bars = uPlot.paths.bars({ size: [0.8, 60] });

  // The value of a line itself: in a stacked chart, what it adds to the line below.
  function own(chart, number, place) {
    const value = chart.lines[number].values[place];
    const below = chart.stacked ? chart.lines[number + 1]?.values[place] ?? 0 : 0;
    return value == null ? null : value - below;
  }

  function series(chart, number, format) {
    const line = chart.lines[number];
    const stroke = paint(line.style);
    const value = (plot, raw, column, place) => (raw == null || place == null ? "–" : format(own(chart, number, place)));
    const plain = { label: line.label, stroke, value, width: 2, points: { show: false }, spanGaps: false };
    if (line.style === "upstream") plain.dash = [4, 3];
    if (line.shape === "mark") {
      const early = line.style === "pane-early";
      return { ...plain, paths: () => null, points: { show: true, size: 8, width: 2, stroke, fill: early ? colour("back") : stroke } };
    }
    if (line.shape === "bar") return { ...plain, paths: bars, fill: stroke, width: 0 };
    if (line.shape === "area") return { ...plain, paths: straight, fill: stroke, width: 1, points: { show: true, size: 3, fill: stroke } };
    return { ...plain, paths: steps };
  }

  // Ticks of event times are clock times; those of processing times have the same form.
  function timeAxis(side, label, axis) {
    return { ...axis, side, label, incrs: NICE, values: (plot, ticks) => ticks.map((tick, place) => {
      const text = clock(tick);
      return place && !simulated(tick) ? text.slice(6) : text;
    }) };
  }

  function ends(chart) {
    return (plot) => {
      if (!chart.window_ends.length && chart.kind !== "event") return;
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.strokeStyle = colour("edge");
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      for (const end of chart.window_ends) {
        const x = Math.round(plot.valToPos(end, "y", true));
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      // Event time equals processing time on this line.
      const { min, max } = plot.scales.x;
      ctx.strokeStyle = colour("soft");
      ctx.setLineDash([devicePixelRatio, 4 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(plot.valToPos(min, "y", true), plot.valToPos(min, "x", true));
      ctx.lineTo(plot.valToPos(max, "y", true), plot.valToPos(max, "x", true));
      ctx.stroke();
      ctx.restore();
    };
  }

  // Without a pointer on the chart, the legend has the last values.
  function rest(plot) {
    if (plot.cursor.left >= 0 && plot.cursor.idx != null) return;
    plot.setLegend({ idxs: plot.data.map((values) => values.findLastIndex((value) => value != null)) }, false);
  }

  function options(chart, width) {
    const format = FORMATS[chart.kind];
    const event = chart.kind === "event";
    const axis = { stroke: colour("text"), grid: { stroke: colour("edge"), width: 1 }, ticks: { stroke: colour("edge") }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
    const times = { time: false };
    const resting = { ready: [rest], setCursor: [rest], setData: [rest] };
    const common = {
      width, height: event ? 380 : 190, padding: [12, 34, null, null],
      legend: { live: true },
      cursor: { drag: { x: !event, y: event } },
      series: [{ label: "processing time", value: (plot, raw) => (raw == null ? "–" : clock(raw)) }, ...chart.lines.map((line, number) => series(chart, number, format))],
    };
    if (event) {
      return {
        ...common,
        scales: { x: { ...times, ori: 1, dir: 1, range: margin }, y: { ...times, ori: 0, dir: 1, range: margin } },
        axes: [
          { ...timeAxis(3, "processing time (UTC)", axis), size: 104 },
          { ...timeAxis(2, "event time (UTC)", axis), space: 90, scale: "y" },
        ],
        hooks: { drawClear: [ends(chart)], ...resting },
      };
    }
    return {
      ...common,
      scales: { x: { ...times, range: margin }, y: { range: (plot, low, high) => [Math.min(0, low ?? 0), (high || 1) * 1.08] } },
      axes: [
        { ...timeAxis(2, null, axis), space: 100 },
        { ...axis, size: 76, ...(chart.kind === "duration" ? { incrs: NICE } : {}), values: (plot, ticks) => ticks.map(format) },
      ],
      hooks: resting,
    };
  }

  // The numbers of the last points, for those who do not see the picture.
  function table(chart) {
    const details = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "The last values as a table";
    details.append(summary);
    details.addEventListener("toggle", () => fill(details, chart), { once: true });
    return details;
  }

  function fill(details, chart) {
    const format = FORMATS[chart.kind];
    const made = document.createElement("table");
    const head = made.createTHead().insertRow();
    for (const text of ["processing time", ...chart.lines.map((line) => line.label)]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      head.append(cell);
    }
    const body = made.createTBody();
    for (let place = chart.times.length - 1; place >= Math.max(0, chart.times.length - 10); place -= 1) {
      const row = body.insertRow();
      row.insertCell().textContent = clock(chart.times[place]);
      chart.lines.forEach((line, number) => { row.insertCell().textContent = format(own(chart, number, place)); });
    }
    details.append(made);
  }

  function draw(chart, holder) {
    const figure = document.createElement("figure");
    const title = document.createElement("h3");
    title.textContent = chart.title;
    const place = document.createElement("div");
    const caption = document.createElement("figcaption");
    caption.textContent = chart.caption;
    if (chart.kind === "event") figure.className = "large";
    figure.append(title, place, caption, table(chart));
    holder.append(figure);
    const plot = new uPlot(options(chart, place.clientWidth || 400), [chart.times, ...chart.lines.map((line) => line.values)], place);
    const canvas = place.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${chart.title}: ${chart.lines.map((line) => line.label).join(", ")}; the table below has the last values`);
    if (chart.asks && document.getElementById("ask")) {
      plot.over.addEventListener("click", (click) => {
        const seconds = plot.posToVal(click.offsetX, "y");
        const form = document.getElementById("ask");
        form.elements.window.value = iso(seconds);
        form.submit();
      });
    }
    return plot;
  }

  async function load(holder) {
    const answer = await fetch(holder.dataset.charts);
    if (!answer.ok) return;
    const charts = await answer.json();
    const shape = JSON.stringify(charts.map((chart) => [chart.title, chart.lines.map((line) => line.label)]));
    const known = drawn.get(holder);
    if (known && known.shape === shape) {
      charts.forEach((chart, place) => {
        Object.assign(known.charts[place], chart);
        known.plots[place].setData([chart.times, ...chart.lines.map((line) => line.values)]);
      });
      return;
    }
    known?.plots.forEach((plot) => plot.destroy());
    holder.replaceChildren();
    if (!charts.length) holder.textContent = "No batch is complete yet.";
    drawn.set(holder, { shape, charts, plots: charts.map((chart) => draw(chart, holder)) });
  }

  function again() {
    for (const holder of document.querySelectorAll(".charts")) {
      const known = drawn.get(holder);
      if (known) drawn.set(holder, { ...known, shape: "" });
      window.beamlikeCharts(holder);
    }
  }

  // One request at a time for each place; a change meanwhile is loaded after it.
  const busy = new WeakMap();
  window.beamlikeCharts = async (holder) => {
    if (busy.has(holder)) { busy.set(holder, true); return; }
    busy.set(holder, false);
    try {
      await load(holder);
    } catch {
      // The server is gone; the page says so.
    } finally {
      const more = busy.get(holder);
      busy.delete(holder);
      if (more) window.beamlikeCharts(holder);
    }
  };

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let waiting;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(again, 200); });
})();
