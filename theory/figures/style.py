"""One look for all figures: colour-blind safe (Okabe-Ito), dashes and markers differ for print."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

Solver: TypeAlias = Literal["exact", "taylor", "closed"]
SOLVERS: tuple[tuple[str, Solver], ...] = (
    ("Cactus, exact", "exact"),
    ("Cactus, Taylor", "taylor"),
    ("Cactus, closed", "closed"),
)

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures"
INK = "#333333"

STYLES: dict[str, dict[str, Any]] = {
    "Cactus, exact": {"color": "#D55E00", "marker": "o", "linestyle": "-"},
    "Cactus, Taylor": {"color": "#E69F00", "marker": "s", "linestyle": "--"},
    "Cactus, closed": {"color": "#CC79A7", "marker": "D", "linestyle": "-."},
    "Mentored": {"color": "#0072B2", "marker": "^", "linestyle": "-"},
    "Band": {"color": "#009E73", "marker": "v", "linestyle": "--"},
    "Lenience": {"color": "#56B4E9", "marker": "P", "linestyle": ":"},
    "Ensemble": {"color": "#000000", "marker": "x", "linestyle": ":"},
    "Typical": {"color": "#8C6D31", "marker": "*", "linestyle": "-."},
    "Top-k set": {"color": "#999999", "marker": "+", "linestyle": (0, (4, 1, 1, 1, 1, 1))},
}

plt.switch_backend("Agg")
plt.rcParams.update(
    {
        "figure.dpi": 100, "figure.constrained_layout.use": True, "savefig.dpi": 150,
        "font.size": 10, "axes.titlesize": 10.5,
        "axes.labelsize": 10, "legend.fontsize": 8.5, "legend.frameon": False,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
        "grid.alpha": 0.25, "grid.linewidth": 0.6, "lines.linewidth": 1.6, "lines.markersize": 4.5,
        "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    }
)  # fmt: skip


def style(name: str, **changes: Any) -> dict[str, Any]:
    """Keyword arguments of `plot` for a rule, with a label."""
    return {"label": name, **STYLES[name], **changes}


def line(name: str, **changes: Any) -> dict[str, Any]:
    """The same without markers."""
    return style(name, marker="", **changes)


def save(figure: Figure, name: str) -> None:
    """Write docs/figures/`name`."""
    OUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT / name, bbox_inches="tight")
    plt.close(figure)
    print(OUT / name)
