"use strict";
// Words of strangers reach the page through textContent or through `words`, never as markup.
const chapters = JSON.parse(document.getElementById("data").textContent);
const redraws = [];
const firstDrawings = [];

function byId(name, number) {
  return document.getElementById(`${name}-${number}`);
}

function element(kind, attributes = {}, ...children) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function percent(share) {
  return share === null ? "–" : (100 * share).toFixed(1);
}

// What Plotly would take for markup in a label becomes text.
function words(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function onChange(controls, draw) {
  for (const control of controls) control.addEventListener("change", draw);
  draw();
}

// The library is large: words, tables and pictures are there before it is started.
function startLibrary() {
  if (window.Plotly) return;
  const script = element("script");
  script.textContent = document.getElementById("library").textContent;
  document.head.append(script);
}

const afterLoading = new Promise((resolve) => { addEventListener("load", resolve); })
  .then(() => Promise.allSettled(firstDrawings))
  .then(() => new Promise((resolve) => { requestAnimationFrame(() => setTimeout(resolve, 0)); }));

// Each chart is drawn when it comes near the window, when colors change, and before printing.
function drawnWhenSeen(place, draw) {
  let seen = false;
  const redraw = () => { if (seen) draw(); };
  const first = () => { if (!seen) { seen = true; startLibrary(); draw(); } };
  const watch = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) { watch.disconnect(); afterLoading.then(first); }
  }, { rootMargin: "300px" });
  watch.observe(place);
  redraws.push({ redraw, first });
  return redraw;
}

function showTheme(choice) {
  const dark = choice === "dark" || (choice === "auto" && preferred.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  for (const each of redraws) each.redraw();
}

function chosenTheme() {
  return document.querySelector("input[name=theme]:checked").value;
}

const preferred = matchMedia("(prefers-color-scheme: dark)");
for (const input of document.querySelectorAll("input[name=theme]")) {
  input.addEventListener("change", () => showTheme(input.value));
}
preferred.addEventListener("change", () => showTheme(chosenTheme()));
showTheme(chosenTheme());

// On paper nothing can be unfolded or come near, and dark ink is kept off it.
addEventListener("beforeprint", () => {
  document.documentElement.dataset.theme = "light";
  for (const fold of document.querySelectorAll("details:not([open])")) {
    fold.open = true;
    fold.dataset.folded = "true";
  }
  for (const each of redraws) { each.first(); each.redraw(); }
});
addEventListener("afterprint", () => {
  for (const fold of document.querySelectorAll("details[data-folded]")) {
    fold.open = false;
    delete fold.dataset.folded;
  }
  showTheme(chosenTheme());
});
