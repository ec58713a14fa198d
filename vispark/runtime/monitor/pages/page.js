"use strict";

function names(get) {
  return [...new Set(points.flatMap((point) => Object.keys(get(point))))].sort();
}

function drawAll() {
  const devices = names((point) => point.devices), workers = names((point) => point.plans);
  draw("memory", devices, devices.map((name) => column((point) => point.devices[name])), size);
  draw("rates", workers, workers.map((name) => column((point) => point.plans[name])), count);
  draw("bytes", workers, workers.map((name) => column((point) => point.bytes[name])), size);
}

function seconds(value) {
  return value < 10 ? value.toFixed(2) : count(value);
}

function show(said) {
  document.getElementById("application").textContent = `${said.name}, ${said.application}`;
  document.title = `vispark ${said.name}`;
  const away = said.workers.filter((each) => each.state === "down" || each.state === "gone").length;
  state(away ? `${away} of ${said.workers.length} workers down` : `${said.workers.length} worker${said.workers.length === 1 ? "" : "s"}`, away ? "down" : "up");
  const total = (rows, get) => rows.reduce((sum, each) => sum + (get(each) || 0), 0);
  showTotals([
    ["plans", count(total(said.workers, (each) => each.plans))],
    ["plans a second", count(total(said.workers, (each) => each.plans_rate))],
    ["kernels", count(total(said.workers, (each) => each.kernels))],
    ["compiled in", `${count(total(said.workers, (each) => each.compiling))} s`],
    ["VRDDs", count(said.vrdds.length)],
    ["device memory", size(total(said.workers, (each) => total(each.memory, (memory) => memory.used)))],
  ]);
  fill("lines", said.lines.map((each) => [each.line || "not a line of the program", count(each.plans),
    seconds(each.seconds), seconds(each.worker), seconds(each.compile), size(each.bytes), each.operations]),
    "no plan was answered since the dashboard began");
  fill("workers", said.workers.map((each) => [each.name, each.node, each.state, each.transport, count(each.plans),
    count(each.plans_rate), each.memory.map((memory) => `${memory.device} ${size(memory.used)}${share(memory.share)}`).join("\n"),
    size(each.host_bytes), count(each.kernels), count(each.failed), count(each.snapshots), size(each.sent),
    each.directory]),
    "no worker yet");
  fill("vrdds", said.vrdds.map((each) => [String(each.vrdd), each.name, count(each.all), count(each.partitions),
    count(each.workers), size(each.nbytes)]), "nothing is held");
}

follow();
