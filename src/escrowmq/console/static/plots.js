// Draws the columns that the broker answers with; each plot names its series.
"use strict";

const SECONDS = 5;
const PENS = ["--accent", "--good", "--warn"];

function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function options(box, names) {
  const axis = { stroke: ink("--soft"), grid: { stroke: ink("--line"), width: 1 } };
  return {
    width: Math.max(box.clientWidth, 200),
    height: 200,
    scales: { y: { range: (_, low, high) => [0, Math.max(high, 1)] } },
    axes: [axis, { ...axis, size: 60 }],
    series: [{}, ...names.map((name, i) => ({ label: name.replace("_", " "), stroke: ink(PENS[i]), width: 2 }))],
  };
}

function start(area) {
  const plots = [...area.querySelectorAll(".plot")].map((box) => {
    const names = box.dataset.series.split(" ");
    return { box, names, plot: new uPlot(options(box, names), [[], ...names.map(() => [])], box) };
  });
  async function refresh() {
    if (document.hidden) return;
    const answer = await fetch(area.dataset.source);
    if (!answer.ok || answer.redirected) return;
    const columns = await answer.json();
    for (const { names, plot } of plots) plot.setData([columns.time, ...names.map((name) => columns[name])]);
  }
  addEventListener("resize", () => plots.forEach(({ box, plot }) => plot.setSize({ width: box.clientWidth, height: 200 })));
  setInterval(refresh, SECONDS * 1000);
  refresh();
}

for (const area of document.querySelectorAll(".plots")) start(area);
