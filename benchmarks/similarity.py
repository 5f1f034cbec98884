"""Learned similarity at scale: all pairs against the direct way, candidates against an exhaustive search, and how both grow.

python benchmarks/similarity.py                                  everything, on a model that is trained first (minutes)
python benchmarks/similarity.py --model FOLDER                   kept in FOLDER, and used again
python benchmarks/similarity.py --items 2000 --truth 100 --largest 5    a small version

The model is learned_graph with the paper's Phi for images, (512, 512, 128, 64) on 128 features, trained on MNIST with 100
labels for 600 steps. One thread, seconds of the processor. All pairs of 10,000 items are made block by block; between blocks,
in turns, the direct way (concatenate pairs, run Phi's layers, in the batch that suits it best) does some of the same pairs,
and a product of 1024 x 1024 matrices shows the peak. Medians over the turns count. Recall is against an exhaustive search by
Phi for --truth queries; its time for all queries is scaled from those. Beyond 60,000 items, real features are repeated with
noise, a tenth of their spread: what an index of that size costs, and no claim about real items.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast

import psutil
import torch
from torch import Tensor
from torch.nn import functional as F

from samekind import SemiSupervisedClassifier
from samekind.io import atomic_write
from samekind.nets.similarity_net import IMAGE_LAYERS, SimilarityNet
from samekind.search.index import SimilarityIndex
from samekind.search.pair_scores import PhiScore
from samekind.search.pairwise import pairwise_blocks

from tables import fitted, show

MATRIX, K = 1024, 9
DIRECT = (512, 2048, 8192)  # batches that the direct way may choose from
PAIRS = 8192  # done directly in a turn
STEPS, MNIST = 600, 60_000  # of training, and images there


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    answer = work()
    return time.process_time() - began, answer


def trained(folder: Path | None) -> SemiSupervisedClassifier:
    epochs = STEPS * 64 / MNIST
    return fitted(SemiSupervisedClassifier(random_state=0, epochs=epochs, settings={"layers": IMAGE_LAYERS}), folder, 100, 0)


def directly(net: SimilarityNet, log_odds: float, z_i: Tensor, z_j: Tensor, batch: int) -> Tensor:
    """W of pairs: concatenated, through all layers."""
    parts = []
    with torch.inference_mode():
        for at in range(0, len(z_i), batch):
            hidden = torch.cat([z_i[at : at + batch], z_j[at : at + batch]], dim=1)
            for layer in net.layers[:-1]:
                hidden = F.leaky_relu(layer(hidden), net.slope)
            logits = net.layers[-1](hidden)
            parts.append(torch.sigmoid(logits[:, 0] - logits[:, 1] - log_odds))
    return torch.cat(parts)


def reset_peak() -> int:
    """Memory in use now; from here on the peak is counted anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return int(psutil.Process().memory_info().rss)


def peak() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


class Direct:
    """The direct way on some pairs of a block, in the batch that suits it best."""

    def __init__(self, predictor: Any, z: Tensor) -> None:
        self._net, self._log_odds, self._z = cast(SimilarityNet, predictor.similarity_net), predictor.log_odds, z
        everything = slice(0, len(z))
        tries = {batch: seconds(partial(self, everything, everything, batch))[0] for batch in DIRECT}
        self.batch = min(tries, key=lambda size: tries[size])

    def __call__(self, rows: slice, columns: slice, batch: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """(i, j, W of them)."""
        i, j = (torch.randint(one.start, one.stop, (PAIRS,)) for one in (rows, columns))
        return i, j, directly(self._net, self._log_odds, self._z[i], self._z[j], batch or self.batch)


def pairs(model: SemiSupervisedClassifier, score: PhiScore, n: int) -> None:
    predictor: Any = model.model_.predictor
    net, z = cast(SimilarityNet, predictor.similarity_net), model.index().features(range(n))
    a, b, out = (torch.randn(MATRIX, MATRIX) for _ in range(3))
    direct_way = Direct(predictor, z)
    before = reset_peak()
    W = torch.empty(n, n)
    turns: list[tuple[float, float, float]] = []
    apart = direct = product = 0.0
    coming = pairwise_blocks(score, z, z)
    while True:
        spent, block = seconds(lambda: next(coming, None))
        if block is None:
            break
        rows, columns, margins = block
        W[rows, columns] = margins.sigmoid()
        if len(turns) % 8 == 0:
            direct, (i, j, W_direct) = seconds(partial(direct_way, rows, columns))
            apart = max(apart, float((W_direct - W[i, j]).abs().max()))
            product, _ = seconds(partial(torch.mm, a, b, out=out))
        turns.append((spent / margins.numel(), direct / PAIRS, 2 * MATRIX**3 / product))
    extra = peak() - before
    widths = [z.shape[1], *net.hidden]
    split = 2 * (sum(p * q for p, q in zip(net.hidden, net.hidden[1:], strict=False)) + net.hidden[-1])
    whole = split + 2 * (2 * widths[0] * widths[1] + net.hidden[-1])
    ours, direct, top = (median(turn[k] for turn in turns) for k in range(3))
    share = median(split / turn[0] / turn[2] for turn in turns)
    print(f"all pairs of {n} items, {len(turns)} blocks; the direct way in batches of {direct_way.batch}\n")
    show(
        ["", "us a pair", "kFLOP a pair", "GFLOP/s", "of the peak"],
        [
            [
                "halves once, in tiles",
                f"{1e6 * ours:.2f}",
                f"{split / 1e3:.0f}",
                f"{split / ours / 1e9:.1f}",
                f"{100 * share:.0f} %",
            ],
            [
                "direct",
                f"{1e6 * direct:.2f}",
                f"{whole / 1e3:.0f}",
                f"{whole / direct / 1e9:.1f}",
                f"{100 * whole / direct / top:.0f} %",
            ],
        ],
    )
    ratio = median(turn[1] / turn[0] for turn in turns)
    print(f"\n{ratio:.2f} times faster per pair; peak of a product {top / 1e9:.1f} GFLOP/s")
    print(f"extra memory at most {extra / 1e6:.0f} MB, of which W itself {W.numel() * 4 / 1e6:.0f} MB")
    print(f"largest difference in W {apart:.1e}\n")


def enlarged(z: Tensor, n: int) -> Tensor:
    """n rows: the first ones as they are, more of them repeated with noise."""
    generator = torch.Generator().manual_seed(0)
    more = torch.randint(0, len(z), (max(0, n - len(z)),), generator=generator)
    noise = torch.randn(len(more), z.shape[1], generator=generator) * (0.1 * z.std(0))
    return torch.cat([z[:n], z[more] + noise])


def search(z: Tensor, score: PhiScore, n_queries: int, n_truth: int) -> dict[str, float]:
    """Seconds to build, and per query both ways; recall@9 over n_truth queries."""
    queries = torch.randperm(min(len(z), 60_000), generator=torch.Generator().manual_seed(1))[:n_queries]
    # the first question makes what is made once
    build, index = seconds(lambda: (index := SimilarityIndex(z, score)).search(queries[:1], K) and index)
    few, found = seconds(lambda: index.search(queries, K))
    every, true = seconds(lambda: index.search(queries[:n_truth], K, candidates="all"))
    recall = found.first(n_truth).recall(true)
    few, every = few / len(queries), every / n_truth
    return {"n": len(z), "build": build, "few": few, "all": every, "recall": recall, "truth": n_truth, "exact": found.exact}


def drawn(rows: list[dict[str, float]]) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.8), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    n = [row["n"] for row in rows]
    axes.loglog(n, [1000 * row["all"] for row in rows], "o-", color="#d1123f", label="exhaustive")
    axes.loglog(n, [1000 * row["few"] for row in rows], "o-", color="#1560d4", label="among candidates")
    axes.set(xlabel="items", ylabel="ms a query, one core", title=f"The {K} most alike by Phi")
    axes.grid(which="major", color="#e4e8ec")
    axes.legend(frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()


def line(row: dict[str, float]) -> list[str]:
    speed = [f"{1000 * row['few']:.1f}", f"{1000 * row['all']:.0f}", f"{row['all'] / row['few']:.0f}"]
    return [f"{row['n']:,.0f}", f"{row['build']:.2f}", *speed, f"{row['recall']:.4f}", f"{row['truth']:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None, help="folder of the trained model")
    parser.add_argument("--items", type=int, default=10_000, help="of which all pairs are made")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--pool", type=int, default=50_000, help="items that the queries are asked of")
    parser.add_argument("--truth", type=int, default=1000, help="queries that are also searched exhaustively")
    parser.add_argument("--largest", type=int, default=6, help="growth up to 10 to this power")
    parser.add_argument("--plot", type=Path, default=Path("docs/similarity_growth.png"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = trained(args.model)
    score = cast(PhiScore, model.model_.pair_score)
    if args.items:
        pairs(model, score, args.items)
    header = ["items", "build s", "candidates ms", "exhaustive ms", "times faster", "recall@9", "exhaustive queries"]
    z = model.index().features(range(len(model.transduction_)))
    if args.queries:
        row = search(z[: args.pool].clone(), score, args.queries, args.truth)
        show(header, [line(row)])
        both = row["all"] / (row["few"] + row["build"] / args.queries)
        print(f"\n{args.queries} queries; with the building of the index {both:.0f} times faster\n")
    sizes = [round(10 ** (p / 2)) for p in range(6, 2 * args.largest + 1)]
    grown = []
    for n in sizes:
        grown.append(search(enlarged(z, n), score, 100, max(5, min(100, 5_000_000 // n))))
        print(" | ".join(line(grown[-1])), flush=True)
    print()
    show(header, [line(row) for row in grown])
    if grown:
        atomic_write(args.plot, drawn(grown))


if __name__ == "__main__":
    main()
