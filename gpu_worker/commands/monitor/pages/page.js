"use strict";

function drawAll() {
  const devices = [...new Set(points.flatMap((point) => Object.keys(point.devices)))].sort();
  draw("memory", devices, devices.map((name) => column((point) => point.up ? point.devices[name] || 0 : null)), size);
  const rates = [["requests", "requests"], ["plans", "plans"], ["replayed", "repeated"],
                 ["kernels", "kernels"]];
  draw("rates", rates.map(([label]) => label), rates.map(([, name]) => column((point) => point.rates[name])), count);
  const bytes = [["received", "received"], ["returned", "returned"], ["to other nodes", "sent"]];
  draw("bytes", bytes.map(([label]) => label), bytes.map(([, name]) => column((point) => point.rates[name])), size);
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
    ["failed plans", count(total((each) => each.failed))],
    ["new plans", count(total((each) => each.lowered))],
    ["kernels", count(total((each) => each.kernels))],
    ["compiled in", `${count(total((each) => each.compiling))} s`],
    ["faults", count(total((each) => each.faults))],
    ["snapshots", count(total((each) => each.snapshots))],
  ];
  showTotals(totals);
  fill("sessions", sessions.map((each) => each.busy
    ? [each.application || each.session, String(each.pid), count(each.clients), "", "busy", ..."         ".split("")]
    : [each.application || each.session, String(each.pid), count(each.clients),
       each.rates.busy === undefined ? "" : `${Math.round(100 * each.rates.busy)} %`,
       each.memory.map((memory) => `${memory.device} ${size(memory.used)} of ${size(memory.total)}`
         + share(each.rates.devices[memory.device])).join("\n"),
       size(each.host), count(each.rates.requests), count(each.rates.plans), count(each.rates.repeated),
       size(each.rates.received), size(each.rates.returned), size(each.rates.sent), count(each.plans),
       count(each.failed)]), "no application has a session here");
  fill("vrdds", sessions.flatMap((each) => each.vrdds.map((held) =>
    [each.application || each.session, String(held.vrdd), held.name, count(held.partitions), dtypes(held.dtype),
     size(held.nbytes), held.device])), "nothing is held");
}

follow();
