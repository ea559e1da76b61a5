// Definitions: on hover and on keyboard focus, in one tooltip that no scrolling table can cut off.
const tip = document.getElementById("tip");
let shownFor = null;

function showTip(term) {
  shownFor = term;
  tip.textContent = term.dataset.definition;
  tip.hidden = false;
  const box = term.getBoundingClientRect();
  const left = Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8));
  const below = box.bottom + 6 + tip.offsetHeight < innerHeight;
  tip.style.left = left + "px";
  tip.style.top = (below ? box.bottom + 6 : box.top - tip.offsetHeight - 6) + "px";
}

function hideTip() {
  shownFor = null;
  tip.hidden = true;
}

for (const term of document.querySelectorAll("abbr.term")) {
  term.dataset.definition = term.title;
  term.setAttribute("aria-description", term.title);
  term.removeAttribute("title");
  term.tabIndex = 0;
  term.addEventListener("mouseenter", () => showTip(term));
  term.addEventListener("focus", () => showTip(term));
  term.addEventListener("mouseleave", hideTip);
  term.addEventListener("blur", hideTip);
}
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
addEventListener("scroll", () => { if (shownFor) hideTip(); }, { capture: true, passive: true });
