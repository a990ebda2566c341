// Accuracy of each class and confusions, counted from pairs of class and prediction.
function table(kind, caption, heads, rows) {
  return element("table", { class: kind },
    element("caption", {}, element("span", {}, caption)),
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, ...rows));
}

function shaded(cell, share) {
  cell.style.backgroundColor = `rgba(${colored("--cell")}, ${(0.6 * share).toFixed(3)})`;
  return cell;
}

function classShares(pairs, classes) {
  const all = new Array(classes).fill(0);
  const right = new Array(classes).fill(0);
  for (const [label, said, count] of pairs ?? []) {
    all[label] += count;
    if (label === said) right[label] += count;
  }
  return all.map((count, label) => (count ? right[label] / count : null));
}

function drawClasses(chapter, number) {
  const under = byId("class-attack", number);
  const run = byId("class-run", number);
  const draw = () => {
    const place = Number(under.value);
    const attack = under.selectedOptions[0].textContent;
    const shares = chapter.confusions.map((found) => classShares(found[place], chapter.classes.length));
    const lines = chapter.classes.map((name, label) => element("tr", {},
      element("th", { scope: "row" }, name),
      ...shares.map((found) => shaded(element("td", { class: "number" }, percent(found[label])), 1 - (found[label] ?? 1)))));
    byId("class-table", number).replaceChildren(
      table("shares", `Accuracy of each class in percent, under ${attack}, shaded where many are lost.`, ["class", ...chapter.runs], lines));
    byId("confusion-table", number).replaceChildren(
      confusion(chapter, chapter.confusions[Number(run.value)][place], `${chapter.runs[Number(run.value)]}, under ${attack}`));
  };
  onChange([under, run], draw);
  redraws.push({ redraw: draw, first: () => {} });
}

function confusion(chapter, pairs, title) {
  if (!pairs) return element("p", {}, `${title}: this run did not meet the attack.`);
  const answers = pairs.some(([, said]) => said < 0) ? [...chapter.classes, "NaN"] : chapter.classes;
  const counts = chapter.classes.map(() => new Array(answers.length).fill(0));
  for (const [label, said, count] of pairs) counts[label][said < 0 ? chapter.classes.length : said] = count;
  const lines = counts.map((row, label) => {
    const all = Math.max(1, row.reduce((sum, count) => sum + count, 0));
    return element("tr", {}, element("th", { scope: "row" }, chapter.classes[label]),
      ...row.map((count, said) => shaded(
        element("td", said === label ? { class: "right" } : {}, count ? String(count) : "·"),
        said === label ? 0 : count / all)));
  });
  return table("confusion", `${title}: images of each class (rows), counted by what the model says (columns).`,
    ["class", ...answers], lines);
}

chapters.forEach(drawClasses);
