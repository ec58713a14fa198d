"use strict";

const SECONDS = 600;
const LEAST_SECONDS = 60;
const HEIGHT = 180;
const COLOURS = ["#2f74c0", "#d9822b", "#2e9e6b", "#a45bc0", "#c0392b", "#7a8699"];
// Seconds between two times that an axis names.
const TICKS = [5, 10, 15, 30, 60, 120, 300];
const points = [];
const charts = new Map();

// Of the time since the last look in which a device had work, behind its name.
function share(busy) {
  return busy === undefined || busy === null ? "" : `, ${Math.round(100 * busy)} % busy`;
}

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

// NumPy's names of dtypes, as of "<f4, |b1".
function dtypes(text) {
  const kinds = {f: "float", i: "int", u: "uint", c: "complex"};
  return text.replace(/[<>|=]([fiucb])(\d+)/g, (all, kind, bytes) => kind === "b" ? "bool" : kinds[kind] + 8 * bytes);
}

function clock(seconds, isExact) {
  const shown = {hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(isExact ? {second: "2-digit"} : {})};
  return new Date(seconds * 1000).toLocaleTimeString("en", shown);
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

// From the first sample on, of at most five minutes.
function shownTime() {
  const end = Date.now() / 1000, first = points.length ? points[0].at : end;
  return [Math.max(end - SECONDS / 2, Math.min(first, end - LEAST_SECONDS)), end];
}

function draw(id, names, series, show) {
  const place = document.getElementById(id);
  let chart = charts.get(id);
  if (!chart || chart.key !== names.join()) {
    if (chart) chart.plot.destroy();
    const axis = {stroke: colour("--soft"), grid: {stroke: colour("--line"), width: 1},
                  ticks: {stroke: colour("--line"), width: 1}};
    const plot = new uPlot({
      width: place.clientWidth, height: HEIGHT, cursor: {drag: {x: false, y: false}}, legend: {markers: {width: 3}},
      scales: {x: {range: shownTime},
               y: {range: (self, low, high) => [0, Math.max(high || 0, 10) * 1.1]}},
      axes: [{...axis, space: 75, incrs: TICKS, values: (self, ticks, axis, space, step) => ticks.map((each) => clock(each, step < 60))}, {...axis, size: 70, values: (self, ticks) => ticks.map(show)}],
      series: [{}, ...names.map((name, number) => ({label: name, stroke: COLOURS[number % COLOURS.length], width: 2,
        points: {show: false}, value: (self, value) => value === null ? "" : show(value)}))],
    }, [points.map((point) => point.at), ...series], place);
    chart = {plot, key: names.join()};
    charts.set(id, chart);
  } else {
    chart.plot.setData([points.map((point) => point.at), ...series]);
  }
  // Where nobody points at a moment, the legend has the last one.
  const {plot} = chart, isPointedAt = plot.cursor.left >= 0;
  if (!isPointedAt) queueMicrotask(() => plot.setLegend({idx: points.length - 1}));
}

function column(get) {
  return points.map((point) => { const value = get(point); return value === undefined ? null : value; });
}

function state(text, kind) {
  const line = document.getElementById("state");
  if (line.textContent !== text) line.textContent = text;
  line.className = kind;
  document.body.className = kind;
}

function showTotals(pairs) {
  document.getElementById("totals").replaceChildren(...pairs.map(([name, value]) => {
    const pair = document.createElement("div");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  }));
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

let events = null;

function listen() {
  events = new EventSource("events");
  events.addEventListener("message", (event) => take(JSON.parse(event.data)));
  events.addEventListener("open", () => { points.length = 0; });
  events.addEventListener("error", () => state("the dashboard does not answer; trying again", "down"));
}

// A page that nobody sees asks nothing: browsers have few connections to one server. It has all history again at once.
function follow() {
  if (document.hidden && events) {
    events.close();
    events = null;
  } else if (!document.hidden && !events) listen();
}

document.addEventListener("visibilitychange", follow);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("resize", () => {
  for (const [id, {plot}] of charts) plot.setSize({width: document.getElementById(id).clientWidth, height: HEIGHT});
});
