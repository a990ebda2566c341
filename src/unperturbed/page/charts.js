// Colors of Okabe and Ito, which people tell apart whatever colors they see; marks and dashes tell them apart too.
const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c", "#7a6a00"];
const MARKS = ["circle", "square", "diamond", "cross", "triangle-up", "x", "star", "hexagon"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
const SETTINGS = { displaylogo: false, responsive: true, displayModeBar: false };

function colored(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axis(title, more = {}) {
  const line = colored("--line");
  return { title: { text: title, font: { size: 13 } }, gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true, ...more };
}

function layout(more) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13, color: colored("--ink") },
    margin: { l: 10, r: 10, t: 10, b: 10 },
    legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0 },
    ...more,
  };
}

function cycled(list, place) {
  return list[place % list.length];
}

function drawAccuracies(chapter, number) {
  const place = byId("accuracy-chart", number);
  place.style.height = `${Math.max(20, 7 + 2.6 * chapter.runs.length)}rem`;
  const names = ["clean", ...chapter.columns.map((column) => column.name)];
  drawnWhenSeen(place, () => {
    const traces = names.map((name, column) => {
      const cells = chapter.accuracies.map((row) => row[column]);
      const shares = cells.map((cell) => (cell ? 100 * cell[0] : null));
      return {
        type: "scatter", mode: "markers", name: words(name), x: shares, y: chapter.lines.map(words),
        error_x: {
          type: "data", symmetric: false, thickness: 1.2, width: 3,
          array: cells.map((cell) => (cell ? 100 * (cell[2] - cell[0]) : 0)),
          arrayminus: cells.map((cell) => (cell ? 100 * (cell[0] - cell[1]) : 0)),
        },
        marker: { color: cycled(COLORS, column), symbol: cycled(MARKS, column + Math.floor(column / COLORS.length)), size: 10 },
        hovertemplate: "%{y}: %{x:.1f} %",
      };
    });
    const lines = { autorange: "reversed", type: "category" };
    Plotly.react(place, traces, layout({
      xaxis: axis("accuracy in percent", { range: [-2, 102] }), yaxis: axis("", lines),
    }), SETTINGS);
  });
}

function drawCurves(chapter, number) {
  const choice = byId("curve", number);
  if (!choice) return;
  const place = byId("curve-chart", number);
  place.style.height = "26rem";
  const redraw = drawnWhenSeen(place, () => {
    const panel = chapter.curves[Number(choice.value)];
    const traces = panel.lines.map((line) => {
      const run = chapter.runs.indexOf(line.run);
      return {
        type: "scatter", mode: line.x.length > 20 ? "lines" : "lines+markers", name: words(line.run),
        x: line.x, y: line.y,
        line: { color: cycled(COLORS, run), dash: cycled(DASHES, Math.floor(run / 2) + Math.floor(run / COLORS.length)), width: 2 },
      };
    });
    const scale = panel.measured === "loss" ? { type: "log", nticks: 8 } : {};
    place.setAttribute("aria-label", `${panel.title} over the steps of training. ${lastValues(panel)}`);
    Plotly.react(place, traces, layout({ xaxis: axis("step"), yaxis: axis(panel.measured, scale) }), SETTINGS);
  });
  choice.addEventListener("change", redraw);
}

function lastValues(panel) {
  const ends = panel.lines.map((line) => {
    const values = line.y.filter((value) => value !== null);
    return values.length ? `${line.run} ends at ${values[values.length - 1]}` : "";
  });
  return ends.filter(Boolean).join("; ");
}

chapters.forEach((chapter, number) => {
  drawAccuracies(chapter, number);
  drawCurves(chapter, number);
});
