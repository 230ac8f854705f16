"use strict";
// Point at, touch or reach by keyboard a mark to see what it is: Tab goes from chart to chart, arrow keys from mark to
// mark. Buttons of a legend hide and show their series. Printing opens what is folded.
const tip = document.getElementById("tip");
const MARKS = "[data-tip], [data-points] circle";
const blocks = new Map();

function block(name) {
  if (!blocks.has(name)) blocks.set(name, JSON.parse(document.getElementById(name).textContent));
  return blocks.get(name);
}

function words(mark) {
  if (mark.dataset.tip !== undefined) return mark.dataset.tip;
  const dots = mark.parentNode;
  const { groups, points } = block(dots.dataset.points);
  const [value, flops, widths] = points[[...dots.children].indexOf(mark)];
  const listed = widths.map((width, number) => `${groups[number]} ${width}`).join(", ");
  return `${value.toFixed(2)} at ${flops.toLocaleString("en")} FLOPs\n${listed}`;
}

function tell(mark, x, y) {
  tip.hidden = mark === null;
  if (mark === null) return;
  tip.textContent = words(mark);
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 12, window.innerWidth - box.width - 4))}px`;
  tip.style.top = `${y - box.height - 12 > 4 ? y - box.height - 12 : y + 16}px`;
}

const markAt = (target) => (target instanceof Element ? target.closest(MARKS) : null);
for (const kind of ["pointerover", "pointerdown"]) {
  document.addEventListener(kind, (event) => tell(markAt(event.target), event.clientX, event.clientY));
}

document.addEventListener("focusin", (event) => {
  const mark = markAt(event.target);
  if (mark === null) return tell(null);
  const box = mark.getBoundingClientRect();
  mark.setAttribute("role", "img");
  mark.setAttribute("aria-label", words(mark));
  tell(mark, box.left + box.width / 2, box.top);
});
document.addEventListener("focusout", () => tell(null));

for (const chart of document.querySelectorAll(".chart")) chart.querySelector(MARKS)?.setAttribute("tabindex", "0");

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") tell(null);
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const mark = markAt(document.activeElement);
  if (step === undefined || mark === null) return;
  event.preventDefault();
  const marks = [...mark.closest(".chart").querySelectorAll(MARKS)].filter((each) => each.getClientRects().length > 0);
  const next = marks[(marks.indexOf(mark) + step + marks.length) % marks.length];
  mark.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
});

for (const button of document.querySelectorAll("[data-legend]")) {
  button.addEventListener("click", () => {
    const isShown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isShown));
    const series = `[data-series="${button.dataset.legend}"]`;
    for (const each of button.closest("figure").querySelectorAll(series)) each.style.display = isShown ? "" : "none";
  });
}

window.addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details")) each.open = true;
});
