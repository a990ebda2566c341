// Images lie in sheets, one for each model and attack; a change is the difference of two sheets, amplified.
const AT_FIRST = 12;

function sheet(source) {
  const image = new Image();
  image.src = source;
  return image.decode().then(() => {
    const canvas = element("canvas", { width: image.width, height: image.height });
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.drawImage(image, 0, 0);
    return pen;
  });
}

function cut(pen, gallery, place) {
  const [width, height] = gallery.size;
  return pen.getImageData((place % gallery.columns) * width, Math.floor(place / gallery.columns) * height, width, height);
}

// A sheet of changes is added to the images, modulo 256.
function attackedPixels(pen, gallery, place, each, original) {
  const pixels = cut(pen, gallery, place);
  if (!each.relative) return pixels;
  const sum = new ImageData(pixels.width, pixels.height);
  const { data } = pixels;
  for (let i = 0; i < data.length; i += 1) sum.data[i] = i % 4 === 3 ? 255 : (original.data[i] + data[i]) % 256;
  return sum;
}

function picture(pixels, alternative) {
  const canvas = element("canvas", {
    width: pixels.width, height: pixels.height, role: "img", "aria-label": alternative, title: alternative,
  });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}

function change(before, after, factor) {
  const result = new ImageData(before.width, before.height);
  for (let i = 0; i < result.data.length; i += 4) {
    for (let c = 0; c < 3; c += 1) result.data[i + c] = 128 + factor * (after.data[i + c] - before.data[i + c]);
    result.data[i + 3] = 255;
  }
  return result;
}

const OUTCOMES = { fooled: "✗ fooled", stood: "✓ stood", wrong: "– wrong before" };

function outcome(label, before, after) {
  if (before !== label) return "wrong";
  return after === label ? "stood" : "fooled";
}

class Gallery {
  constructor(chapter, number) {
    this.chapter = chapter;
    this.gallery = chapter.gallery;
    this.sheets = new Map();
    this.list = byId("gallery-list", number);
    this.count = byId("gallery-count", number);
    this.more = byId("gallery-more", number);
    const control = (name) => byId(`gallery-${name}`, number);
    this.filters = { attack: control("attack"), label: control("class"), run: control("run"), outcome: control("outcome") };
    this.shown = AT_FIRST;
    this.more.addEventListener("click", () => this.showMore());
    for (const filter of Object.values(this.filters)) {
      filter.addEventListener("change", () => { this.shown = AT_FIRST; this.draw(); });
    }
  }

  pen(source) {
    if (!this.sheets.has(source)) this.sheets.set(source, sheet(source));
    return this.sheets.get(source);
  }

  // Cells that pass all filters, by image.
  chosen() {
    const { attack, label, run, outcome: wanted } = this.filters;
    const attacked = this.gallery.attacked.filter(
      (each) => each.attack === attack.value && (run.value === "" || each.run === Number(run.value)));
    return this.gallery.labels.map((truth, place) => {
      if (label.value !== "" && truth !== Number(label.value)) return [];
      return attacked.map((each) => ({ each, result: outcome(truth, this.gallery.before[each.run][place], each.after[place]) }))
        .filter((cell) => wanted.value === "" || cell.result === wanted.value);
    });
  }

  async draw() {
    const drawing = (this.drawing = (this.drawing ?? 0) + 1);
    const cells = this.chosen();
    const places = cells.map((found, place) => (found.length ? place : -1)).filter((place) => place >= 0);
    const seen = places.slice(0, this.shown);
    const total = cells.reduce((sum, found) => sum + found.length, 0);
    const clean = await this.pen(this.gallery.sheet);
    const items = [];
    for (const place of seen) items.push(await this.item(clean, place, cells[place]));
    if (drawing !== this.drawing) return;
    this.list.replaceChildren(...items);
    this.more.hidden = seen.length === places.length;
    this.count.textContent = `${places.length} images and ${total} attacked copies of them match; ${seen.length} images are shown.`;
  }

  async item(clean, place, cells) {
    const names = this.chapter.classes;
    const truth = names[this.gallery.labels[place]];
    const number = this.gallery.places[place];
    const original = cut(clean, this.gallery, place);
    const attack = this.filters.attack.selectedOptions[0].textContent;
    const figures = [];
    for (const { each, result } of cells) {
      const before = names[this.gallery.before[each.run][place]];
      const after = names[each.after[place]] ?? "NaN";
      const pixels = attackedPixels(await this.pen(each.sheet), this.gallery, place, each, original);
      const factor = this.gallery.amplified[each.attack];
      const run = this.chapter.runs[each.run];
      figures.push(element("figure", { class: "cell" },
        picture(pixels, `Image ${number} after ${attack} on ${run}`),
        picture(change(original, pixels, factor), `The change, amplified ${factor} times`),
        element("figcaption", {},
          element("span", { class: "model" }, run),
          `says ${before}, then ${after} `,
          element("span", { class: `outcome ${result}` }, OUTCOMES[result]))));
    }
    return element("li", { "data-place": place },
      element("figure", { class: "original" }, picture(original, `Test image ${number}, class ${truth}`),
        element("figcaption", {}, element("strong", {}, truth), element("span", { class: "model" }, `test image ${number}`),
          element("span", { class: "model" }, `change × ${this.gallery.amplified[this.filters.attack.value]}`))),
      element("div", { class: "models" }, ...figures));
  }

  // The keyboard stays where the new images begin.
  async showMore() {
    const first = this.shown;
    this.shown += 3 * AT_FIRST;
    await this.draw();
    const next = this.list.children[first];
    if (next) { next.tabIndex = -1; next.focus({ preventScroll: true }); }
  }
}

chapters.forEach((chapter, number) => {
  if (!chapter.gallery || !chapter.gallery.attacked.length) return;
  const gallery = new Gallery(chapter, number);
  firstDrawings.push(gallery.draw());
});
