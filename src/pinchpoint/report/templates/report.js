"use strict";
// Pictures are drawn when they come near the screen, in the colours of the moment, and again when those change.
const dark = matchMedia("(prefers-color-scheme: dark)");

function painted(text) {
  const style = getComputedStyle(document.documentElement);
  for (const [role, holder] of Object.entries(ROLES)) {
    text = text.replaceAll(holder, style.getPropertyValue("--" + role).trim());
  }
  return text;
}

async function draw(source) {
  const place = document.getElementById(source.dataset.plot);
  place.replaceChildren();
  await Bokeh.embed.embed_item(JSON.parse(painted(source.textContent)), place.id);
  place.dataset.drawn = "yes";
}

function drawAll() {
  for (const source of document.querySelectorAll("script[data-plot]")) {
    draw(source);
  }
}

drawAll();
dark.addEventListener("change", drawAll);

{% include "tips.js" %}

// A page that is laid out for paper would have Bokeh draw anew, too late for the printer: so what stands on the
// screen is copied, and the copies are printed.
function canvases(root) {
  const found = [];
  for (const element of root.querySelectorAll("*")) {
    if (element instanceof HTMLCanvasElement) found.push(element);
    if (element.shadowRoot) found.push(...canvases(element.shadowRoot));
  }
  return found;
}

function copied(plot) {
  const layers = canvases(plot).filter((canvas) => canvas.width > 1 && canvas.height > 1);
  const copy = document.createElement("canvas");
  copy.className = "printed";
  copy.width = Math.max(0, ...layers.map((canvas) => canvas.width));
  copy.height = Math.max(0, ...layers.map((canvas) => canvas.height));
  const brush = copy.getContext("2d");
  // Drawn for a dark screen: light on dark becomes dark on light, hues stay.
  if (dark.matches) brush.filter = "invert(1) hue-rotate(180deg)";
  for (const canvas of layers) brush.drawImage(canvas, 0, 0);
  return copy;
}

addEventListener("beforeprint", () => {
  for (const plot of document.querySelectorAll(".plot")) plot.after(copied(plot));
  for (const folded of document.querySelectorAll("details:not([open]):not(.rung)")) {
    folded.open = true;
    folded.dataset.folded = "yes";
  }
});
addEventListener("afterprint", () => {
  for (const copy of document.querySelectorAll("canvas.printed")) copy.remove();
  for (const folded of document.querySelectorAll("details[data-folded]")) {
    folded.open = false;
    delete folded.dataset.folded;
  }
});
