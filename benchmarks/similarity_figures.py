"""Figures 3 and 4 of the paper at CPU scale, with metrics: MNIST, 100 labels, the small convolutional network.

    python benchmarks/similarity_figures.py                         train both models, print the table, write the figures
    python benchmarks/similarity_figures.py --model A --sntg B      save the models in these folders, or load them from there

learned_graph has the paper's Phi for images (512, 512, 128, 64). It is compared with pi_model+sntg, whose graph is the 0/1
matrix of predicted labels, trained on the same labels for the same number of steps. Both are evaluated on test images.
Precision, mAP and ROC AUC are over 1,000 queries, each against all other images; the squared
errors between W and the ideal matrix are over all pairs of 500 images.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from samekind import SemiSupervisedClassifier
from samekind.bench.reporting.similarity_figures import SimilaritySizes, similarity_report
from samekind.bench.reporting.text_table import to_markdown
from samekind.data.hub.loaders import load_dataset
from samekind.files.io import atomic_write
from samekind.nets.similarity_net import IMAGE_LAYERS

from bench_tables import load_or_fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None, help="folder of the learned_graph model")
    parser.add_argument("--sntg", type=Path, default=None, help="folder of the pi_model+sntg model")
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=10_000, help="number of test images to search")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder for the figures")
    args = parser.parse_args()
    torch.set_num_threads(1)
    mnist = load_dataset("mnist")
    epochs = args.steps * 64 / len(mnist.x)
    ours = SemiSupervisedClassifier(random_state=args.seed, epochs=epochs, settings={"layers": IMAGE_LAYERS})
    sntg = SemiSupervisedClassifier("pi_model+sntg", random_state=args.seed, epochs=epochs)
    ours, sntg = load_or_fit(ours, args.model, args.labels, args.seed), load_or_fit(sntg, args.sntg, args.labels, args.seed)
    x, y = mnist.x_test[: args.images], mnist.y_test[: args.images]
    predicted = sntg.predict(x)
    report = similarity_report(ours, x, y, sizes=SimilaritySizes(queries=args.queries), other_labels=predicted, seed=args.seed)
    wrong = 100 * float((predicted != y).mean())
    print(f"{len(x)} test images; error: learned_graph {report.error:.2f} %, pi_model+sntg {wrong:.2f} %\n")
    print(to_markdown(report.table))
    for figure in report.figures(x):
        path = args.out / f"similarity_{figure.file}"
        atomic_write(path, figure.png)
        print(path)


if __name__ == "__main__":
    main()
