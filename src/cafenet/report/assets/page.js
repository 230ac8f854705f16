"use strict";
// Point at (or touch) a marked shape to see what it is; click a legend's entry to hide or show its series.
const tip = document.getElementById("tip");
const read = (name) => JSON.parse(document.getElementById(name).textContent);
const blocks = new Map();

function words(shape) {
  const owner = shape.closest("[data-tip], [data-points]");
  if (owner === null) return "";
  if (owner.dataset.tip !== undefined) return owner.dataset.tip;
  const dot = shape.closest("use");
  if (dot === null) return "";
  const name = owner.dataset.points;
  if (!blocks.has(name)) blocks.set(name, read(name));
  const block = blocks.get(name);
  const [value, flops, widths] = block.points[[...owner.querySelectorAll("use")].indexOf(dot)];
  const listed = widths.map((width, number) => `${block.groups[number]} ${width}`).join(", ");
  return `${value.toFixed(2)} at ${flops.toLocaleString("en")} FLOPs\n${listed}`;
}

function show(event) {
  const said = event.target instanceof Element ? words(event.target) : "";
  tip.hidden = said === "";
  if (said === "") return;
  tip.textContent = said;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, window.innerWidth - box.width - 4))}px`;
  const above = event.clientY - box.height - 10;
  tip.style.top = `${above > 4 ? above : event.clientY + 14}px`;
}

for (const kind of ["pointerover", "pointerdown"]) document.addEventListener(kind, show);

for (const entry of document.querySelectorAll("[data-legend]")) {
  entry.addEventListener("click", () => {
    const figure = entry.closest("svg");
    const series = entry.dataset.legend;
    const off = entry.classList.contains("off");
    for (const each of figure.querySelectorAll(`[data-legend="${series}"]`)) each.classList.toggle("off", !off);
    for (const each of figure.querySelectorAll(`[data-series="${series}"]`)) each.style.display = off ? "" : "none";
  });
}
