// Curves by uPlot: a figure for each metric, a line for each group of runs, a band over its seeds, alarms on the axis.
"use strict";
(() => {
  const section = document.querySelector("[data-curves]");
  if (!section || !window.uPlot) return;
  const place = section.querySelector("[data-charts]");
  const form = section.querySelector("[data-chart-form]");
  let plots = [];
  let last = null;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const element = (kind, className, text) => { const made = document.createElement(kind); if (className) made.className = className; if (text !== undefined) made.textContent = text; return made; };
  const fade = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

  function query() {
    const asked = new URLSearchParams();
    for (const run of section.dataset.runs.split(",").filter(Boolean)) asked.append("run", run);
    for (const metric of section.dataset.metrics.split(",").filter(Boolean)) asked.append("metric", metric);
    if (section.dataset.smooth !== "1") asked.set("smooth", section.dataset.smooth);
    if (section.dataset.seeds === "apart") asked.set("seeds", "apart");
    return asked;
  }

  function legend(lines) {
    const list = section.querySelector("[data-legend-of-runs]");
    list.replaceChildren(...lines.map((line, i) => {
      const item = element("li", "series");
      item.append(element("span", `dot k${(i % 6) + 1}`), line.label + (line.seeds > 1 ? ` (${line.seeds} seeds)` : ""));
      return item;
    }));
    list.hidden = lines.length < 2 && !(lines[0] && lines[0].seeds > 1);
  }

  function figure(name, share, lines, alarms) {
    const box = element("figure", "chart");
    const caption = element("figcaption");
    caption.append(element("b", "", name.replaceAll("_", " ")));
    const values = lines.map((line, i) => {
      const item = element("span", "series");
      item.append(element("span", `dot k${(i % 6) + 1}`));
      const value = element("span", "value");
      item.append(value);
      caption.append(item);
      return value;
    });
    const plot = element("div", "plot");
    box.append(caption, plot);
    place.append(box);
    const text = (v) => v == null ? "–" : share ? (v * 100).toFixed(1) + "%" : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : Number(v.toPrecision(3)).toString();

    const xs = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    const on = (line, ys) => { const at = new Map(line.x.map((x, i) => [x, ys[i]])); return xs.map((x) => at.get(x) ?? null); };
    const data = [xs], series = [{}], bands = [];
    lines.forEach((line, i) => {
      const stroke = colour(`--s${(i % 6) + 1}`);
      data.push(on(line, line.mean));
      series.push({ stroke, width: 1.75, spanGaps: true, points: { show: false } });
      if (line.low) {
        data.push(on(line, line.high), on(line, line.low));
        const edge = { stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
        series.push(edge, { ...edge });
        bands.push({ series: [data.length - 2, data.length - 1], fill: fade(stroke, 0.16) });
      }
    });
    const say = (at) => {
      let row = 1;
      lines.forEach((line, i) => {
        const place = at ?? xs.indexOf(line.x[line.x.length - 1]);
        const band = line.low && data[row + 1][place] != null;
        values[i].textContent = text(data[row][place]) + (band ? ` [${text(data[row + 2][place])}, ${text(data[row + 1][place])}]` : "");
        row += line.low ? 3 : 1;
      });
    };
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px " + colour("--sans"), gap: 4 };
    const options = {
      width: place.clientWidth ? plot.clientWidth : 400, height: 190, legend: { show: false }, padding: [8, 8, 0, 0],
      scales: { x: { time: false }, y: share ? { range: (u, low, high) => [0, Math.min(1, Math.max(0.1, high * 1.05))] } : {} },
      cursor: { y: false, points: { size: 6 }, sync: { key: "iterations" } },
      axes: [{ ...axis, size: 26, grid: { show: false } }, { ...axis, size: 46, values: (u, all) => all.map((v) => share ? Math.round(v * 100) + "%" : text(v)) }],
      series, bands,
      hooks: {
        setCursor: [(u) => say(u.cursor.idx)],
        draw: [(u) => {
          const context = u.ctx;
          context.save();
          context.strokeStyle = context.fillStyle = colour("--warn");
          context.lineWidth = devicePixelRatio;
          for (const alarm of alarms) {
            const x = Math.round(u.valToPos(alarm.iteration, "x", true));
            context.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
            context.beginPath(); context.moveTo(x, u.bbox.top); context.lineTo(x, u.bbox.top + u.bbox.height); context.stroke();
            const size = 4 * devicePixelRatio;
            context.beginPath(); context.moveTo(x - size, u.bbox.top); context.lineTo(x + size, u.bbox.top); context.lineTo(x, u.bbox.top + size * 1.6); context.fill();
          }
          context.restore();
        }],
      },
    };
    const made = new uPlot(options, data, plot);
    plots.push([made, plot]);
    if (xs.length) say(null);
  }

  function draw(found) {
    last = found;
    for (const [made] of plots) made.destroy();
    plots = [];
    place.replaceChildren();
    for (const [name, lines] of Object.entries(found.metrics)) figure(name, found.shares.includes(name), lines.filter((line) => line.x.length), found.alarms);
    legend(Object.values(found.metrics)[0] || []);
    const list = section.querySelector("[data-alarms]");
    const alone = new Set(found.alarms.map((alarm) => alarm.run)).size < 2;
    list.replaceChildren(...found.alarms.map((alarm) => {
      const item = element("details");
      const head = element("summary");
      head.append(element("b", "", alarm.name.replaceAll("_", " ")), ` iteration ${alarm.iteration}${alone ? "" : ", " + alarm.run}`);
      item.append(head, element("p", "", alarm.text));
      item.open = alone && found.alarms.length < 3;
      return item;
    }));
    list.hidden = !found.alarms.length;
  }

  async function load() {
    const kept = document.getElementById("curves");  // an exported page brings its own
    if (kept) { draw(JSON.parse(kept.textContent)); return; }
    try {
      const answer = await fetch(section.dataset.curves + "?" + query());
      if (answer.ok) draw(await answer.json());
    } catch { /* the server has ended */ }
  }

  function changed() {
    const values = new FormData(form);
    section.dataset.metrics = values.getAll("metric").join(",");
    section.dataset.smooth = values.get("smooth") || "1";
    section.dataset.seeds = values.get("seeds") || "together";
    const boxes = [...document.querySelectorAll("[data-draw]")];
    if (boxes.length) section.dataset.runs = boxes.filter((box) => box.checked).map((box) => box.value).join(",") || "none";
    const address = new URL(location);
    const kept = query();
    for (const name of ["metric", "smooth", "seeds", "run"]) address.searchParams.delete(name);
    for (const [name, value] of kept) if (name !== "run" || (boxes.length && !boxes.every((box) => box.checked))) address.searchParams.append(name, value);
    history.replaceState(null, "", address);
    load();
  }

  form?.addEventListener("change", changed);
  form?.addEventListener("submit", (event) => event.preventDefault());
  for (const box of document.querySelectorAll("[data-draw]")) box.addEventListener("change", changed);
  document.addEventListener("gem-theme", () => last && draw(last));
  document.addEventListener("gem-grown", load);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => last && draw(last));
  new ResizeObserver(() => { for (const [made, plot] of plots) if (plot.clientWidth && plot.clientWidth !== made.width) made.setSize({ width: plot.clientWidth, height: 190 }); }).observe(place);
  load();
})();
