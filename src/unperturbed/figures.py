"""Figures for papers, drawn with matplotlib: surfaces in 3D beside their contours, and panels of curves."""

import io
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from .curves import Line, Panel
from .files import write_anew
from .printing import printable
from .surfaces import Surface

KINDS = (".png", ".pdf", ".svg")
DOTS_PER_INCH = 150
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C510A")
"""those of Okabe and Ito, which color-blind people tell apart, and a brown"""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLES = ("-", "--", "-.", ":")
MARKED = 12
"""points of a line up to which each has a marker"""
SETTINGS: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "legend.fontsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e0e0e0",
    "grid.linewidth": 0.6,
    "pdf.fonttype": 42,
    "svg.hashsalt": "unperturbed",
}
"""fonttype 42 embeds letters as text, as conferences ask for"""
ELEVATION, AZIMUTH = 26.0, 52.0
MESH = 41
"""lines of the mesh along each axis of a 3D figure; the contours beside it show all points"""
NAMES = {"decision": "D(x')", "loss": "loss"}


def files_for(out: Path) -> list[Path]:
    """The files a figure goes to: the one that is named, or a PNG and a PDF where the name has no ending."""
    if out.suffix.lower() in KINDS:
        return [out]
    if out.suffix or out.name in ("", "..") or out.name.lower() in KINDS:
        raise ValueError(
            f"a figure cannot be written to {printable(out)}: give it a name that ends with {', '.join(KINDS)}, "
            "or with no ending at all, for a PNG and a PDF"
        )
    return [out.with_suffix(".png"), out.with_suffix(".pdf")]


def save(figure: Figure, files: Sequence[Path]) -> None:
    """Write the figure to each of these files, whole or not at all."""
    contents = [rendered(figure, file.suffix.lower().removeprefix(".")) for file in files]
    for file, content in zip(files, contents, strict=True):
        write_anew(file, content)


def rendered(figure: Figure, kind: str) -> bytes:
    """The figure as a file of that kind; the same figure gives the same bytes at all times."""
    content = io.BytesIO()
    dated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with rc_context(SETTINGS):
        figure.savefig(content, format=kind, dpi=DOTS_PER_INCH, metadata=dated.get(kind, {}))
    return content.getvalue()


def as_text(words: str) -> str:
    """Words of strangers, with nothing in them that matplotlib takes for mathematics or for a hidden label."""
    return (" " if words.startswith("_") else "") + printable(words).replace("$", r"\$")


def draw_surfaces(surfaces: Mapping[str, Surface]) -> Figure:
    """A row for each model, by its name: the surface in 3D and its contours; one scale of colors for all."""
    scale = Scale(list(surfaces.values()))
    with rc_context(SETTINGS):
        figure = Figure(figsize=(7.0, 2.9 * len(surfaces) + 0.2), layout="constrained")
        rows = figure.subfigures(len(surfaces), 1, squeeze=False)[:, 0]
        for row, (name, surface) in zip(rows, surfaces.items(), strict=True):
            row.suptitle(as_text(name), fontsize=10.5, fontweight="bold")
            places = row.add_gridspec(1, 2, width_ratios=(1.1, 1))
            draw_raised(row.add_subplot(places[0], projection="3d"), surface, scale)
            flat = row.add_subplot(places[1])
            bar = row.colorbar(draw_flat(flat, surface, scale), ax=flat, shrink=0.9, aspect=22)
            bar.set_label(NAMES[surface.value])
            bar.set_ticks([-1, -0.5, 0, 0.5, 1] if scale.decision else MaxNLocator(5).tick_values(0, scale.high))
            bar.ax.set_ylim(scale.low, scale.high)
            bar.outline.set_visible(False)
    return figure


class Scale:
    """Colors and heights that surfaces side by side share."""

    def __init__(self, surfaces: Sequence[Surface]) -> None:
        self.decision = surfaces[0].value == "decision"
        top = 1.0 if self.decision else max(1e-6, *(surface.bounds[1] for surface in surfaces))
        self.low, self.high = (-1.0, 1.0) if self.decision else (0.0, top)
        # The darkest red and blue would hide the marks that are drawn over them.
        self.norm = Normalize(1.2 * self.low, 1.2 * self.high) if self.decision else Normalize(self.low, self.high)
        self.levels = np.linspace(self.low, self.high, 21)
        self.colors = colormaps["RdBu_r"] if self.decision else colormaps["YlGnBu"]


def draw_raised(axis: Any, surface: Surface, scale: Scale) -> None:
    """The surface in 3D under a fine mesh, seen from where both coordinates grow; made of pixels in a PDF too."""
    across, down = np.meshgrid(surface.across.numpy(), surface.down.numpy())
    values = surface.values.numpy()
    axis.plot_surface(
        across,
        down,
        values,
        cmap=scale.colors,
        norm=scale.norm,
        rcount=MESH,
        ccount=MESH,
        linewidth=0.2,
        edgecolor=(0, 0, 0, 0.25),
        rasterized=True,
    )
    axis.view_init(elev=ELEVATION, azim=AZIMUTH)
    axis.set_zlim(scale.low, scale.high)
    axis.set_box_aspect((1, 1, 0.75), zoom=1.0)
    axis.set_xlabel(short(surface.axes[1]), labelpad=-4, fontsize=8)
    axis.set_ylabel(short(surface.axes[0]), labelpad=-4, fontsize=8)
    axis.zaxis.set_rotate_label(False)
    axis.set_zlabel(NAMES[surface.value], labelpad=-2, fontsize=8, rotation=90)
    axis.tick_params(labelsize=7, pad=-2)
    for side in (axis.xaxis, axis.yaxis, axis.zaxis):
        side.set_major_locator(MaxNLocator(4))
        side.set_pane_color((0.96, 0.96, 0.96, 1.0))


def draw_flat(axis: Any, surface: Surface, scale: Scale) -> Any:
    """The contours of the surface; the boundary D = 0, the image in the middle, and the Linf ball as a diamond.

    Where one axis goes further than the other, that is the largest ball of which both show all.
    """
    across, down, values = surface.across.numpy(), surface.down.numpy(), surface.values.numpy()
    colors = axis.contourf(
        across, down, values.clip(scale.low, scale.high), levels=scale.levels, cmap=scale.colors, norm=scale.norm
    )
    colors.set_rasterized(True)
    if scale.decision and surface.bounds[0] < 0 < surface.bounds[1]:
        axis.contour(across, down, values, levels=[0.0], colors="black", linewidths=1.2)
    if surface.scenario == "pixel":
        eps = min(down[-1], across[-1])
        axis.plot([eps, 0, -eps, 0, eps], [0, eps, 0, -eps, 0], color="black", linewidth=1.0, linestyle=(0, (4, 3)))
    for color, width in (("white", 3.2), ("black", 1.4)):
        axis.plot(0, 0, marker="+", color=color, markersize=9, markeredgewidth=width)
    axis.set_xlabel(surface.axes[1])
    axis.set_ylabel(surface.axes[0])
    axis.spines[:].set_visible(False)
    axis.set_box_aspect(1)
    axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    return colors


def short(words: str) -> str:
    """The name of an axis in one or two words, for the narrow places of a 3D figure."""
    return words.replace("random orthogonal direction", "random").replace("adversarial direction", "adversarial")


def draw_panels(panels: Sequence[Panel], *, columns: int = 4) -> Figure:
    """Panels side by side, every label with one color and marker in all of them, and one legend for all."""
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    columns = min(columns, len(panels))
    rows = ceil(len(panels) / columns)
    marked = all(len(line.x) <= MARKED for panel in panels for line in panel.lines)
    looks = {label: look(number, marked=marked) for number, label in enumerate(labels)}
    width = max(3.6, 2.55 * columns + 0.3)
    taken = np.cumsum(sorted(map(legend_width, labels), reverse=True))
    beside = max(1, int((taken <= width).sum()))
    with rc_context(SETTINGS):
        height = 2.35 * rows + 0.22 * ceil(len(labels) / beside) + 0.15
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        for place, (axis, panel) in enumerate(zip(axes, panels, strict=False)):
            draw_panel(axis, panel, looks)
            if place % columns and panel.y_label == panels[place - 1].y_label:
                axis.set_ylabel("")
        handles = [
            Line2D([], [], label=as_text(label), markersize=4, linewidth=1.6, **style)
            for label, style in looks.items()
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=beside, frameon=False)
    return figure


def legend_width(label: str) -> float:
    """About how many inches a label takes in the legend, with its line and the space around."""
    return 0.068 * len(label) + 0.65


def look(number: int, *, marked: bool) -> dict[str, Any]:
    """Color, marker and dashes of a line; without markers, dashes let lines show that lie below others."""
    return {
        "color": COLORS[number % len(COLORS)],
        "marker": MARKERS[number % len(MARKERS)] if marked else "",
        "linestyle": STYLES[(number // len(COLORS) + (0 if marked else number)) % len(STYLES)],
    }


def draw_panel(axis: Any, panel: Panel, looks: Mapping[str, dict[str, Any]]) -> None:
    """The lines of a panel with their intervals; a line of one point is a level across the panel."""
    alone = [line for line in panel.lines if len(line.x) == 1]
    if len(alone) == len(panel.lines):
        alone = []
    for line in panel.lines:
        style = looks[line.label]
        if line in alone:
            axis.axhline(line.y[0], linewidth=1.4, zorder=1, **style | {"linestyle": (0, (1, 1.5)), "marker": ""})
            continue
        axis.plot(line.x, line.y, linewidth=1.6, markersize=4, **style)
        if line.low:
            draw_interval(axis, line, style["color"])
    axis.set_title(as_text(panel.title))
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    axis.grid(True)
    axis.set_axisbelow(True)
    axis.yaxis.set_major_locator(MaxNLocator(5))
    top = 100.0 if panel.percent else axis.get_ylim()[1]
    axis.set_ylim(-0.03 * top, 1.03 * top)


def draw_interval(axis: Any, line: Line, color: str) -> None:
    """A band from low to high; a bar where there is but one point."""
    if len(line.x) == 1:
        axis.vlines(line.x, line.low, line.high, color=color, linewidth=1.0)
    else:
        axis.fill_between(line.x, line.low, line.high, color=color, alpha=0.13, linewidth=0)
