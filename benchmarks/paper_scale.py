"""Train a preset of the paper at full size, or a few steps of it to measure its cost.

    python benchmarks/paper_scale.py --steps 3
    python benchmarks/paper_scale.py --preset cifar10/learned_graph/4000 --out runs/cifar10

With --steps the run has this many steps in all, every ramp keeps its fraction of the run, and no test error is measured.
Without --steps the script trains the paper's run and prints its test error; the same command with the same --out resumes it.
Download the data first: `samekind data fetch cifar10`.
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

from bench_tables import show


def count_by_hand(image: NetCost, preset: PaperPreset) -> int:
    """Return the FLOPs of a step of learned_graph, computed from the batch sizes: all images and all pairs."""
    pair = measure_net_cost(SimilarityNet(128), torch.zeros(1, 128), torch.zeros(1, 128), through_input=True)
    rows = 2 * preset.batch_unlabelled + preset.batch_labelled
    pairs = preset.batch_unlabelled + preset.batch_labelled // 2 + preset.batch_unlabelled // 2
    return step_flops(StepPasses(image, n_training=rows, n_inference=rows), StepPasses(pair, n_training=pairs))


def time_steps(preset: PaperPreset, data: BenchmarkData, steps: int, seed: int) -> None:
    split = draw_split(data.y, preset.labels, seed)
    prepared = prepare_run(preset, data.x, split, len(data.classes), PaperRunOptions(steps=steps))
    student = prepared.stages[-1].build().student
    image = measure_net_cost(student, torch.zeros(1, *prepared.dataset.shape))
    counted = count_step_flops(preset, len(data.classes)) or 0  # 0: the step cannot be counted on meta tensors
    print(f"{preset.name}: {len(prepared.dataset)} images, {len(split.labelled)} labels, split {split.hash}")
    print(f"parameters of the classifier: {image.parameters:,}")
    print(f"forward: {image.forward / 1e9:.4f} GFLOP per image; forward and backward: {image.training / 1e9:.4f}")
    print(f"a step: {counted / 1e12:.4f} TFLOP counted", end="")
    print(f", {count_by_hand(image, preset) / 1e12:.4f} by images and pairs" if "learned_graph" in preset.method else "")
    epochs, run = preset.n_stages * preset.schedule.epochs, counted * preset.n_stages * preset.schedule.steps
    print(f"the paper's run of {epochs:.0f} epochs: {run:.3g} FLOP")
    began = time.perf_counter()
    trained = prepared.train()
    seconds = time.perf_counter() - began
    losses = [record["loss"] for record in trained.history]
    terms = list(losses[-1])
    losses_by_term = [[f"{loss[term]:.4f}" if term in loss else "off" for term in terms] for loss in losses]
    show(
        ["step", *terms, "loss"],
        [[str(n), *row, f"{sum(loss.values()):.4f}"] for n, (row, loss) in enumerate(zip(losses_by_term, losses, strict=True))],
    )
    speed = counted * steps / seconds / 1e9
    print(f"{seconds / steps:.1f} s per step, {speed:.1f} GFLOP/s on {torch.get_num_threads()} thread(s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cifar10/learned_graph/4000", help="TABLE/METHOD/LABELS")
    parser.add_argument("--steps", type=int, help="number of steps; default: those of the paper")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validate", action="store_true", help="hold out validation images, and evaluate on them too")
    parser.add_argument("--out", help="folder of the run; default: nothing is saved")
    args = parser.parse_args()
    preset = find_preset(args.preset)
    data = load_dataset(preset.data)
    if args.steps is not None:
        return time_steps(preset, data, args.steps, args.seed)
    outcome = train_preset(preset, data, args.seed, PaperRunOptions(out=args.out, verbose=True), validate=args.validate)
    line = json.dumps(outcome.record(preset))
    if args.out is not None:
        Path(args.out, "result.json").write_text(line + "\n", encoding="utf-8")
    print(line)
    return None


if __name__ == "__main__":
    main()
