"""A cell of the paper's tables at its full size: all of it, or a few steps to see what it costs.

    python benchmarks/paper_scale.py --steps 3
    python benchmarks/paper_scale.py --preset cifar10/learned_graph/4000 --out runs/cifar10

With --steps the run is that many steps in all, every ramp in its share, and the net is not tested. Without, it is the paper's
run with its test error at the end; started again with the same --out, it goes on. The data must be there: `samekind data
fetch cifar10`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from samekind.bench.presets.lookup import find_preset
from samekind.bench.presets.paper_preset import PaperPreset
from samekind.bench.running.paper_scale import PaperRunOptions, count_step_flops, prepare_run, train_preset
from samekind.data.hub.loaders import BenchmarkData, load_dataset
from samekind.data.splits import draw_split
from samekind.nets.net_cost import NetCost, StepPasses, measure_net_cost, step_flops
from samekind.nets.similarity_net import SimilarityNet
from samekind.training.trainer import train

from tables import show


def by_hand(image: NetCost, chosen: PaperPreset) -> int:
    """A step of the learned graph as the paper's batches say it: all images through both nets, all pairs through Phi."""
    pair = measure_net_cost(SimilarityNet(128), torch.zeros(1, 128), torch.zeros(1, 128), through_input=True)
    rows = 2 * chosen.batch_unlabelled + chosen.batch_labelled
    pairs = chosen.batch_unlabelled + chosen.batch_labelled // 2 + chosen.batch_unlabelled // 2
    return step_flops(StepPasses(image, n_training=rows, n_inference=rows), StepPasses(pair, n_training=pairs))


def a_few_steps(chosen: PaperPreset, data: BenchmarkData, steps: int, seed: int) -> None:
    split = draw_split(data.y, chosen.labels, seed)
    ready = prepare_run(chosen, data.x, split, len(data.classes), PaperRunOptions(steps=steps))
    student = ready.method.student
    image = measure_net_cost(student, torch.zeros(1, *ready.dataset.shape))
    counted = count_step_flops(chosen, len(data.classes)) or 0  # 0: the method's step depends on the numbers
    print(f"{chosen.name}: {len(ready.dataset)} images, {len(split.labelled)} labels, split {split.hash}")
    print(f"parameters of the classifier: {image.parameters:,}")
    print(f"forward: {image.forward / 1e9:.4f} GFLOP an image; forward and backward: {image.training / 1e9:.4f}")
    print(f"a step: {counted / 1e12:.4f} TFLOP counted", end="")
    print(f", {by_hand(image, chosen) / 1e12:.4f} by rows and pairs" if "learned_graph" in chosen.method else "")
    print(f"the paper's run of {chosen.schedule.epochs:.0f} epochs: {counted * chosen.schedule.steps:.3g} FLOP")
    began = time.perf_counter()
    trained = train(ready.method, ready.dataset, ready.views, ready.config)
    seconds = time.perf_counter() - began
    losses = [record["loss"] for record in trained.history]
    terms = list(losses[-1])
    cells = [[f"{loss[term]:.4f}" if term in loss else "off" for term in terms] for loss in losses]
    show(
        ["step", *terms, "loss"],
        [[str(n), *row, f"{sum(loss.values()):.4f}"] for n, (row, loss) in enumerate(zip(cells, losses, strict=True))],
    )
    speed = counted * steps / seconds / 1e9
    print(f"{seconds / steps:.1f} s a step, {speed:.1f} GFLOP/s on {torch.get_num_threads()} thread(s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cifar10/learned_graph/4000", help="TABLE/METHOD/LABELS")
    parser.add_argument("--steps", type=int, help="how many in all; left out: as many as the paper has")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validate", action="store_true", help="hold validation images out of the pool, and test on them too")
    parser.add_argument("--out", help="folder of the run; left out: nothing is kept")
    args = parser.parse_args()
    chosen = find_preset(args.preset)
    data = load_dataset(chosen.data)
    if args.steps is not None:
        return a_few_steps(chosen, data, args.steps, args.seed)
    outcome = train_preset(chosen, data, args.seed, PaperRunOptions(out=args.out, verbose=True), validate=args.validate)
    line = json.dumps(outcome.record(chosen))
    if args.out is not None:
        Path(args.out, "result.json").write_text(line + "\n", encoding="utf-8")
    print(line)
    return None


if __name__ == "__main__":
    main()
