"""Batch sampler: an endless sequence of batches with the views that a method asks for. It can resume after any batch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from samekind.data.augment.transforms import Views, takes_uint8
from samekind.data.dataset import Batch, Dataset
from samekind.errors import LabelError, SettingError, did_you_mean


class BatchSampler:
    """Endless iterator over batches of labelled and unlabelled samples.

    Unlabelled samples come in a new random order in each epoch; a last batch that would not be full is dropped. Labelled
    samples come from an endless sequence of random permutations. With `paired`, the two halves of the labelled samples of a
    batch come from two independent sequences, so that sample k of both halves is a random pair. A sample can then be in both
    halves.
    """

    def __init__(
        self,
        dataset: Dataset,
        views: Views,
        *,
        labelled_views: tuple[str, ...],
        unlabelled_views: tuple[str, ...],
        n_labelled: int,
        n_unlabelled: int,
        generator: torch.Generator,
        paired: bool = False,
    ) -> None:
        for name in {*labelled_views, *unlabelled_views} - set(views):
            raise SettingError(f"the method needs a view called {name!r}, which is not in views; {did_you_mean(name, views)}")
        self._labelled = dataset.labelled
        if len(self._labelled) == 0:
            raise LabelError("the dataset holds no labelled sample. Label at least one sample of each class.")
        self._dataset, self._views, self._generator = dataset, views, generator
        self._labelled_views, self._unlabelled_views = labelled_views, unlabelled_views
        n_second = n_labelled // 2 if paired else 0
        self._sizes = n_labelled - n_second, n_second
        self._n_unlabelled = n_unlabelled
        self._first, self._second = (Shuffle(len(self._labelled), generator) for _ in range(2))
        self._epochs = Shuffle(len(dataset), generator)

    def __iter__(self) -> BatchSampler:
        return self

    def __next__(self) -> Batch:
        first, second = self._sizes
        labelled = torch.cat([self._first.endless(first), self._second.endless(second)])
        samples = self._labelled[labelled]
        index = self._epochs.in_epochs(self._n_unlabelled if self._unlabelled_views else 0)
        return Batch(
            x_l=self._views_of(samples, self._labelled_views),
            y_l=self._dataset.y[samples],
            x_u=self._views_of(index, self._unlabelled_views),
            index=index,
            labelled=labelled,
        )

    def _views_of(self, samples: Tensor, names: tuple[str, ...]) -> tuple[Tensor, ...]:
        """Return the samples after each of the named transforms, as one tensor for each name."""
        views = [self._views[name] for name in names]
        kinds = {takes_uint8(view) for view in views}
        x = {kind: self._dataset.raw_images(samples) if kind else self._dataset.inputs(samples) for kind in kinds}
        return tuple(view(x[takes_uint8(view)], samples, self._generator) for view in views)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the position in the sequence of batches. It takes a few kilobytes, however large the dataset is."""
        state = {"generator": self._generator.get_state()}
        for name, shuffle in self._shuffles().items():
            state |= {f"{name}.{key}": tensor for key, tensor in shuffle.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Set the position in the sequence of batches: the next batch is the one that would have followed when it was saved."""
        for name, shuffle in self._shuffles().items():
            shuffle.load_state_dict({key: state[f"{name}.{key}"] for key in ("before", "at")})
        self._generator.set_state(state["generator"])

    def _shuffles(self) -> dict[str, Shuffle]:
        return {"first": self._first, "second": self._second, "epochs": self._epochs}


class Shuffle:
    """Endless sequence of random permutations of 0 to n - 1.

    A permutation itself is not saved, but the state of the generator from which it can be drawn again.
    """

    def __init__(self, n: int, generator: torch.Generator) -> None:
        self._n, self._generator = n, generator
        self._before = generator.get_state()
        self._order, self._at = torch.arange(0), 0  # the first permutation is drawn when it is needed

    def endless(self, size: int) -> Tensor:
        """Return the next `size` indices. At the end of a permutation, continue with a new one."""
        drawn = self._take(size)
        while len(drawn) < size:
            self._draw()
            drawn = torch.cat([drawn, self._take(size - len(drawn))])
        return drawn

    def in_epochs(self, size: int) -> Tensor:
        """Return the next `size` indices, at most n, of one permutation.

        If fewer indices are left in the permutation, they are dropped and a new one is begun.
        """
        if self._at + size > len(self._order):
            self._draw()
        return self._take(size)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the generator state from which the permutation was drawn, and the position within the permutation."""
        return {"before": self._before, "at": torch.tensor(self._at)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Set the position from a saved state.

        The caller must then restore the generator, because other objects may share it.
        """
        self._generator.set_state(state["before"])
        self._order, self._at = torch.arange(0), 0
        if not 0 <= int(state["at"]) <= self._n:
            raise ValueError(f"the saved position {int(state['at'])} is outside the order of {self._n} samples")
        if int(state["at"]) > 0:
            self._draw()
        self._at = int(state["at"])

    def _take(self, size: int) -> Tensor:
        drawn = self._order[self._at : self._at + size]
        self._at += len(drawn)
        return drawn

    def _draw(self) -> None:
        self._before = self._generator.get_state()
        self._order, self._at = torch.randperm(self._n, generator=self._generator), 0
