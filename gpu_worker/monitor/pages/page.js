"use strict";

const SECONDS = 600;
const COLOURS = ["#2f74c0", "#d9822b", "#2e9e6b", "#a45bc0", "#c0392b", "#7a8699"];
const points = [];
const charts = new Map();

function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (Math.abs(bytes) < 1000) return unit === "B" ? `${bytes.toFixed(0)} B` : `${bytes.toFixed(1)} ${unit}`;
    bytes /= 1000;
  }
  return `${bytes.toFixed(1)} TB`;
}

function count(value) {
  if (value === null || value === undefined) return "";
  return value.toLocaleString("en", {maximumFractionDigits: value < 10 ? 1 : 0});
}

function element(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function fill(id, rows, what) {
  const table = document.getElementById(id), body = table.tBodies[0], heads = table.tHead.rows[0].cells;
  body.replaceChildren(...rows.map((row) => {
    const line = document.createElement("tr");
    line.append(...row.map((text, place) => element("td", text, heads[place].className)));
    return line;
  }));
  if (!rows.length) {
    const cell = element("td", what, "none");
    cell.colSpan = heads.length;
    body.insertRow().append(cell);
  }
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw(id, names, series, show) {
  const place = document.getElementById(id);
  let chart = charts.get(id);
  if (!chart || chart.key !== names.join()) {
    if (chart) chart.plot.destroy();
    const axis = {stroke: colour("--soft"), grid: {stroke: colour("--line"), width: 1},
                  ticks: {stroke: colour("--line"), width: 1}};
    const plot = new uPlot({
      width: place.clientWidth, height: 180, cursor: {drag: {x: false, y: false}},
      scales: {x: {range: () => { const end = Date.now() / 1000; return [end - SECONDS / 2, end]; }},
               y: {range: (self, low, high) => [0, Math.max(high || 0, 1) * 1.1]}},
      axes: [axis, {...axis, size: 70, values: (self, ticks) => ticks.map(show)}],
      series: [{}, ...names.map((name, number) => ({label: name, stroke: COLOURS[number % COLOURS.length], width: 2,
        points: {show: false}, value: (self, value) => value === null ? "" : show(value)}))],
    }, [points.map((point) => point.at), ...series], place);
    chart = {plot, key: names.join()};
    charts.set(id, chart);
  } else {
    chart.plot.setData([points.map((point) => point.at), ...series]);
  }
}

function column(get) {
  return points.map((point) => { const value = get(point); return value === undefined ? null : value; });
}

function drawAll() {
  const devices = [...new Set(points.flatMap((point) => Object.keys(point.devices)))].sort();
  draw("memory", devices, devices.map((name) => column((point) => point.up ? point.devices[name] || 0 : null)), size);
  const rates = [["requests", "requests"], ["plans", "plans"], ["replayed", "repeated"]];
  draw("rates", rates.map(([label]) => label), rates.map(([, name]) => column((point) => point.rates[name])), count);
  const bytes = [["received", "received"], ["returned", "returned"], ["to other nodes", "sent"]];
  draw("bytes", bytes.map(([label]) => label), bytes.map(([, name]) => column((point) => point.rates[name])), size);
}

function state(text, kind) {
  const line = document.getElementById("state");
  if (line.textContent !== text) line.textContent = text;
  line.className = kind;
  document.body.className = kind;
}

function show(node) {
  if (!node.up) {
    state(`down: ${node.reason}`, "down");
    return;
  }
  const sessions = node.sessions;
  state(`up ${Math.round(node.uptime)} s, process ${node.pid}`, "up");
  document.getElementById("worker").textContent = node.worker;
  document.title = `vispark worker ${node.worker}`;
  const total = (get) => sessions.reduce((sum, each) => sum + (get(each) || 0), 0);
  const totals = [
    ["sessions", count(sessions.length)],
    ["VRDDs", count(total((each) => new Set(each.vrdds.map((held) => held.vrdd)).size))],
    ["device memory", size(total((each) => each.memory.reduce((sum, memory) => sum + memory.used, 0)))],
    ["plans", count(total((each) => each.plans))],
    ["plans that failed", count(total((each) => each.failed))],
    ["new plans", count(total((each) => each.lowered))],
    ["snapshots", count(total((each) => each.snapshots))],
  ];
  document.getElementById("totals").replaceChildren(...totals.map(([name, value]) => {
    const pair = document.createElement("div");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  }));
  fill("sessions", sessions.map((each) => each.busy
    ? [each.application || each.session, String(each.pid), count(each.clients), "busy", ..."         ".split("")]
    : [each.application || each.session, String(each.pid), count(each.clients),
       each.memory.map((memory) => `${memory.device} ${size(memory.used)} of ${size(memory.total)}`).join(", "),
       size(each.host), count(each.rates.requests), count(each.rates.plans), count(each.rates.repeated),
       size(each.rates.received), size(each.rates.returned), size(each.rates.sent), count(each.plans),
       count(each.failed)]), "no application has a session here");
  fill("vrdds", sessions.flatMap((each) => each.vrdds.map((held) =>
    [each.application || each.session, String(held.vrdd), held.name, count(held.partitions), held.dtype,
     size(held.nbytes), held.device])), "nothing is held");
}

function take(said) {
  points.push(...said.points);
  const first = Date.now() / 1000 - SECONDS;
  while (points.length && points[0].at < first) points.shift();
  show(said.node);
  drawAll();
}

function redraw() {
  for (const chart of charts.values()) chart.plot.destroy();
  charts.clear();
  drawAll();
}

const events = new EventSource("events");
events.addEventListener("message", (event) => take(JSON.parse(event.data)));
events.addEventListener("open", () => { points.length = 0; });
events.addEventListener("error", () => state("the dashboard does not answer; trying again", "down"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("resize", redraw);
