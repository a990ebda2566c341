// D(x') over two directions: to turn, and from above; red where the model is right, blue where it is wrong.
const RED_AND_BLUE = [[0, "#2166ac"], [0.42, "#92c5de"], [0.5, "#f7f7f7"], [0.58, "#f4a582"], [1, "#b2182b"]];
const EYE = { x: -1.6, y: -1.75, z: 1.05 };

function canDrawSolids() {
  return Boolean(document.createElement("canvas").getContext("webgl"));
}

class SurfacePair {
  constructor(chapter, number) {
    this.chapter = chapter;
    this.number = number;
    this.solid = canDrawSolids();
    this.eye = { ...EYE };
    this.scenario = byId("surface-scenario", number);
    this.runs = { left: byId("surface-run-left", number), right: byId("surface-run-right", number) };
    const [worst, best] = this.extremes(chapter.surfaces.scenarios[this.scenario.value].correct);
    this.runs.left.value = String(worst);
    this.runs.right.value = String(best);
    const redraw = drawnWhenSeen(byId("surface-left", number), () => this.draw());
    for (const control of [this.scenario, ...Object.values(this.runs)]) control.addEventListener("change", redraw);
    byId("turn-left", number).addEventListener("click", () => this.turn(Math.PI / 8));
    byId("turn-right", number).addEventListener("click", () => this.turn(-Math.PI / 8));
  }

  // At first the most and the least shaken models stand beside each other.
  extremes(shares) {
    return [shares.indexOf(Math.min(...shares)), shares.lastIndexOf(Math.max(...shares))];
  }

  draw() {
    for (const side of ["left", "right"]) this.drawSide(side);
  }

  drawSide(side) {
    const run = Number(this.runs[side].value);
    const name = this.chapter.runs[run];
    const found = this.chapter.surfaces.scenarios[this.scenario.value];
    const z = found.values[run];
    const place = byId(`surface-${side}`, this.number);
    const contour = byId(`contour-${side}`, this.number);
    const sentence = `${name}: D is ${found.middle[run].toFixed(2)} at the image itself and ${found.least[run].toFixed(2)} `
      + `where it is least; the model is right on ${percent(found.correct[run])} % of the plane.`;
    byId(`surface-title-${side}`, this.number).textContent = name;
    byId(`surface-words-${side}`, this.number).textContent = sentence;
    place.setAttribute("aria-label", `Surface of ${sentence}`);
    contour.setAttribute("aria-label", `Contours of ${sentence}`);
    place.classList.add("surface");
    place.style.height = "23rem";
    contour.style.height = "20rem";
    const [down, across] = found.axes;
    const shared = { x: found.across, y: found.down, z, colorscale: RED_AND_BLUE, cmin: -1, cmax: 1, showscale: false };
    if (this.solid) this.drawSolid(place, shared, down, across);
    else place.replaceChildren(element("p", { class: "note" }, "This browser draws no solid surfaces; its contours are below."));
    Plotly.react(contour, [{
      ...shared, cmin: undefined, cmax: undefined, type: "contour", zmin: -1, zmax: 1,
      contours: { start: -0.75, end: 0.75, size: 0.25 }, line: { width: 0.6 },
    }], layout({ xaxis: axis(across), yaxis: axis(down) }), SETTINGS);
  }

  drawSolid(place, shared, down, across) {
    const titled = (title) => axis(title, { title: { text: title, font: { size: 11 } }, tickfont: { size: 10 }, nticks: 5, showspikes: false });
    const height = { ...titled("D"), range: [-1.05, 1.05] };
    const scene = {
      xaxis: titled(across), yaxis: titled(down), zaxis: height,
      camera: { eye: this.eye, center: { x: 0, y: 0, z: -0.15 } }, aspectmode: "cube", dragmode: "turntable",
    };
    Plotly.react(place, [{ ...shared, type: "surface" }], layout({ scene, margin: { l: 0, r: 0, t: 0, b: 0 } }), SETTINGS);
    if (!place.dataset.followed) {
      place.dataset.followed = "true";
      place.on("plotly_relayout", (moved) => { if (moved["scene.camera"]) this.eye = moved["scene.camera"].eye; });
    }
  }

  turn(angle) {
    const { x, y, z } = this.eye;
    this.eye = { x: x * Math.cos(angle) - y * Math.sin(angle), y: x * Math.sin(angle) + y * Math.cos(angle), z };
    for (const side of ["left", "right"]) {
      if (this.solid) Plotly.relayout(byId(`surface-${side}`, this.number), { "scene.camera.eye": this.eye });
    }
  }
}

chapters.forEach((chapter, number) => {
  if (chapter.surfaces) new SurfacePair(chapter, number);
});
