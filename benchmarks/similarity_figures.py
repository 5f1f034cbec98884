"""Figures 3 and 4 of the paper at CPU scale, and their numbers: MNIST, 100 labels, the small convolutional net.

python benchmarks/similarity_figures.py                          trains both models, prints the table, writes the figures
python benchmarks/similarity_figures.py --model A --rival B      models are kept in these folders, and used again

learned_graph has the paper's Phi for images (512, 512, 128, 64); beside it stands pi_model+sntg, whose graph is 0 or 1 by
predicted labels, trained on the same labels for as many steps. Both are asked about test images alone. Precision, mAP and ROC
AUC are over 1,000 queries, each against all other images; errors to the ideal matrix are over all pairs of 500 images.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from samekind import SemiSupervisedClassifier
from samekind.bench.reporting.similarity_figures import SimilaritySizes, similarity_report
from samekind.bench.reporting.text_table import to_markdown
from samekind.data.hub.loaders import load_dataset
from samekind.io import atomic_write
from samekind.nets.similarity_net import IMAGE_LAYERS

from tables import fitted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None, help="folder of the learned_graph model")
    parser.add_argument("--rival", type=Path, default=None, help="folder of the pi_model+sntg model")
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=10_000, help="test images that are searched")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder for the figures")
    args = parser.parse_args()
    torch.set_num_threads(1)
    mnist = load_dataset("mnist")
    epochs = args.steps * 64 / len(mnist.x)
    ours = SemiSupervisedClassifier(random_state=args.seed, epochs=epochs, settings={"layers": IMAGE_LAYERS})
    rival = SemiSupervisedClassifier("pi_model+sntg", random_state=args.seed, epochs=epochs)
    ours, rival = fitted(ours, args.model, args.labels, args.seed), fitted(rival, args.rival, args.labels, args.seed)
    x, y = mnist.x_test[: args.images], mnist.y_test[: args.images]
    given = rival.predict(x)
    report = similarity_report(ours, x, y, sizes=SimilaritySizes(queries=args.queries), other_labels=given, seed=args.seed)
    wrong = 100 * float((given != y).mean())
    print(f"{len(x)} test images; wrong classes: learned_graph {report.error:.2f} %, pi_model+sntg {wrong:.2f} %\n")
    print(to_markdown(report.table))
    for picture in report.figures(x):
        path = args.out / f"similarity_{picture.file}"
        atomic_write(path, picture.png)
        print(path)


if __name__ == "__main__":
    main()
