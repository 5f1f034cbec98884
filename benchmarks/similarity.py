"""Speed of the learned similarity: all pairs, and search among candidates compared with exhaustive search.

    python benchmarks/similarity.py                                  everything, with a model that is trained first (minutes)
    python benchmarks/similarity.py --model FOLDER                   save the model in FOLDER, or load it from there
    python benchmarks/similarity.py --items 2000 --truth 100 --largest 5    a small version

The model is learned_graph with the paper's Phi for images, (512, 512, 128, 64) on 128 features, trained on MNIST with 100
labels for 600 steps. All times are CPU seconds on one thread.

All pairs of 10,000 items are computed block by block. Between blocks, a direct implementation (concatenate pairs, run Phi's
layers, with its best batch size) computes some of the same pairs, and a product of 1024 x 1024 matrices gives the peak. The
table has medians. Recall is relative to an exhaustive search by Phi for --truth queries. Beyond 60,000 items, features are
repeated with noise of a tenth of their standard deviation: this measures the cost of an index of that size, not its recall on
real items.
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
from samekind.files.io import atomic_write
from samekind.nets.similarity_net import IMAGE_LAYERS, SimilarityNet
from samekind.search.index import SimilarityIndex
from samekind.search.pair_scores import PhiScore
from samekind.search.pairwise import pairwise_blocks

from bench_tables import load_or_fit, show

MATRIX, K = 1024, 9
DIRECT_BATCHES = (512, 2048, 8192)  # the fastest of these is used
PAIRS = 8192  # computed by the direct implementation in a turn
STEPS, N_MNIST = 600, 60_000  # training steps and training images


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def trained_model(folder: Path | None) -> SemiSupervisedClassifier:
    epochs = STEPS * 64 / N_MNIST
    return load_or_fit(
        SemiSupervisedClassifier(random_state=0, epochs=epochs, settings={"layers": IMAGE_LAYERS}), folder, 100, 0
    )


def direct_similarity(net: SimilarityNet, log_odds: float, z_i: Tensor, z_j: Tensor, batch: int) -> Tensor:
    """Return W of pairs: concatenate their features and run all layers of Phi."""
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
    """Reset the peak memory, and return the memory in use."""
    Path("/proc/self/clear_refs").write_text("5")
    return int(psutil.Process().memory_info().rss)


def peak_memory() -> int:
    """Return the peak memory in bytes since the last reset."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


class DirectImplementation:
    """The direct implementation on random pairs of a block, with its fastest batch size."""

    def __init__(self, predictor: Any, z: Tensor) -> None:
        self._net, self._log_odds, self._z = cast(SimilarityNet, predictor.similarity_net), predictor.log_odds, z
        everything = slice(0, len(z))
        times = {batch: seconds(partial(self, everything, everything, batch))[0] for batch in DIRECT_BATCHES}
        self.batch = min(times, key=lambda size: times[size])

    def __call__(self, rows: slice, columns: slice, batch: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return indices i and j of random pairs, and their W."""
        i, j = (torch.randint(one.start, one.stop, (PAIRS,)) for one in (rows, columns))
        return i, j, direct_similarity(self._net, self._log_odds, self._z[i], self._z[j], batch or self.batch)


def time_all_pairs(model: SemiSupervisedClassifier, score: PhiScore, n: int) -> None:
    predictor: Any = model.model_.predictor
    net, z = cast(SimilarityNet, predictor.similarity_net), model.index().features(range(n))
    a, b, out = (torch.randn(MATRIX, MATRIX) for _ in range(3))
    direct_implementation = DirectImplementation(predictor, z)
    before = reset_peak()
    W = torch.empty(n, n)
    turns: list[tuple[float, float, float]] = []
    difference = direct = product = 0.0
    blocks = pairwise_blocks(score, z, z)
    while True:
        spent, block = seconds(lambda: next(blocks, None))
        if block is None:
            break
        rows, columns, log_odds = block
        W[rows, columns] = log_odds.sigmoid()
        if len(turns) % 8 == 0:
            direct, (i, j, W_direct) = seconds(partial(direct_implementation, rows, columns))
            difference = max(difference, float((W_direct - W[i, j]).abs().max()))
            product, _ = seconds(partial(torch.mm, a, b, out=out))
        turns.append((spent / log_odds.numel(), direct / PAIRS, 2 * MATRIX**3 / product))
    extra = peak_memory() - before
    widths = [z.shape[1], *net.hidden]
    split = 2 * (sum(p * q for p, q in zip(net.hidden, net.hidden[1:], strict=False)) + net.hidden[-1])
    whole = split + 2 * (2 * widths[0] * widths[1] + net.hidden[-1])
    ours, direct, top = (median(turn[k] for turn in turns) for k in range(3))
    fraction = median(split / turn[0] / turn[2] for turn in turns)
    print(f"all pairs of {n} items, {len(turns)} blocks; direct implementation in batches of {direct_implementation.batch}\n")
    show(
        ["", "us per pair", "kFLOP per pair", "GFLOP/s", "of the peak"],
        [
            [
                "first layer once per item, in tiles",
                f"{1e6 * ours:.2f}",
                f"{split / 1e3:.0f}",
                f"{split / ours / 1e9:.1f}",
                f"{100 * fraction:.0f} %",
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
    print(f"largest difference in W {difference:.1e}\n")


def enlarged(z: Tensor, n: int) -> Tensor:
    """Return n features: the given ones, and beyond those, repetitions with noise."""
    generator = torch.Generator().manual_seed(0)
    more = torch.randint(0, len(z), (max(0, n - len(z)),), generator=generator)
    noise = torch.randn(len(more), z.shape[1], generator=generator) * (0.1 * z.std(0))
    return torch.cat([z[:n], z[more] + noise])


def search(z: Tensor, score: PhiScore, n_queries: int, n_truth: int) -> dict[str, float]:
    """Return the seconds to build an index, the seconds per query of both searches, and recall@9 over n_truth queries."""
    queries = torch.randperm(min(len(z), 60_000), generator=torch.Generator().manual_seed(1))[:n_queries]
    # the first query includes the work that is done once
    build, index = seconds(lambda: (index := SimilarityIndex(z, score)).search(queries[:1], K) and index)
    few, found = seconds(lambda: index.search(queries, K))
    every, true = seconds(lambda: index.search(queries[:n_truth], K, candidates="all"))
    recall = found.first(n_truth).recall(true)
    few, every = few / len(queries), every / n_truth
    return {"n": len(z), "build": build, "few": few, "all": every, "recall": recall, "truth": n_truth, "exact": found.exact}


def plot_growth(rows: list[dict[str, float]]) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.8), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    n = [row["n"] for row in rows]
    axes.loglog(n, [1000 * row["all"] for row in rows], "o-", color="#d1123f", label="exhaustive")
    axes.loglog(n, [1000 * row["few"] for row in rows], "o-", color="#1560d4", label="among candidates")
    axes.set(xlabel="items", ylabel="ms per query, one core", title=f"The {K} most similar by Phi")
    axes.grid(which="major", color="#e4e8ec")
    axes.legend(frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()


def format_row(row: dict[str, float]) -> list[str]:
    speed = [f"{1000 * row['few']:.1f}", f"{1000 * row['all']:.0f}", f"{row['all'] / row['few']:.0f}"]
    return [f"{row['n']:,.0f}", f"{row['build']:.2f}", *speed, f"{row['recall']:.4f}", f"{row['truth']:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None, help="folder of the trained model")
    parser.add_argument("--items", type=int, default=10_000, help="number of items for all pairs")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--searched", type=int, default=50_000, help="number of items to search")
    parser.add_argument("--truth", type=int, default=1000, help="number of queries for the exhaustive search")
    parser.add_argument("--largest", type=int, default=6, help="largest index: 10 to this power")
    parser.add_argument("--plot", type=Path, default=Path("docs/similarity_growth.png"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = trained_model(args.model)
    score = cast(PhiScore, model.model_.pair_score)
    if args.items:
        time_all_pairs(model, score, args.items)
    header = ["items", "build s", "candidates ms", "exhaustive ms", "times faster", "recall@9", "exhaustive queries"]
    z = model.index().features(range(len(model.transduction_)))
    if args.queries:
        row = search(z[: args.searched].clone(), score, args.queries, args.truth)
        show(header, [format_row(row)])
        both = row["all"] / (row["few"] + row["build"] / args.queries)
        print(f"\n{args.queries} queries; including the build of the index {both:.0f} times faster\n")
    sizes = [round(10 ** (p / 2)) for p in range(6, 2 * args.largest + 1)]
    grown = []
    for n in sizes:
        grown.append(search(enlarged(z, n), score, 100, max(5, min(100, 5_000_000 // n))))
        print(" | ".join(format_row(grown[-1])), flush=True)
    print()
    show(header, [format_row(row) for row in grown])
    if grown:
        atomic_write(args.plot, plot_growth(grown))


if __name__ == "__main__":
    main()
