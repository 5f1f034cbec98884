"""An endless stream of batches, with the views that a method declared. It can be left and taken up again at any batch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from samekind.data.augment.transforms import Views, takes_uint8
from samekind.data.dataset import Batch, Dataset
from samekind.errors import LabelError, SettingError, did_you_mean


class BatchSampler:
    """Batches without end: the pool in a new order each epoch (a last partial batch is dropped), and the labelled rows in one
    order after another. With `paired`, half of the labelled batch comes from each of two such shuffles, so that pairs by
    position are independent; a row may then be in a batch twice, and labels are learnt a little worse."""

    def __init__(
        self,
        pool: Dataset,
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
            raise SettingError(f"no view is called {name!r}; {did_you_mean(name, views)}")
        self._labelled = pool.labelled
        if len(self._labelled) == 0:
            raise LabelError("the pool holds no labelled row: nothing to learn from. Label at least one row of each class.")
        self._pool, self._views, self._generator = pool, views, generator
        self._labelled_views, self._unlabelled_views = labelled_views, unlabelled_views
        of_second = n_labelled // 2 if paired else 0
        self._sizes = n_labelled - of_second, of_second
        self._n_unlabelled = n_unlabelled
        self._first, self._second = (Shuffle(len(self._labelled), generator) for _ in range(2))
        self._epochs = Shuffle(len(pool), generator)

    def __iter__(self) -> BatchSampler:
        return self

    def __next__(self) -> Batch:
        first, second = self._sizes
        labelled = torch.cat([self._first.endless(first), self._second.endless(second)])
        rows = self._labelled[labelled]
        index = self._epochs.in_epochs(self._n_unlabelled if self._unlabelled_views else 0)
        return Batch(
            x_l=self._seen(rows, self._labelled_views),
            y_l=self._pool.y[rows],
            x_u=self._seen(index, self._unlabelled_views),
            index=index,
            labelled=labelled,
        )

    def _seen(self, rows: Tensor, names: tuple[str, ...]) -> tuple[Tensor, ...]:
        """The rows through each of the views."""
        views = [self._views[name] for name in names]
        kinds = {takes_uint8(view) for view in views}
        x = {kind: self._pool.raw_images(rows) if kind else self._pool.inputs(rows) for kind in kinds}
        return tuple(view(x[takes_uint8(view)], rows, self._generator) for view in views)

    def state_dict(self) -> dict[str, Tensor]:
        """Where the stream stands: a few kilobytes, however large the pool."""
        state = {"generator": self._generator.get_state()}
        for name, shuffle in self._shuffles().items():
            state |= {f"{name}.{key}": tensor for key, tensor in shuffle.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Stand where `state_dict` was asked; the next batch is the one that came next there."""
        for name, shuffle in self._shuffles().items():
            shuffle.load_state_dict({key: state[f"{name}.{key}"] for key in ("before", "at")})
        self._generator.set_state(state["generator"])

    def _shuffles(self) -> dict[str, Shuffle]:
        return {"first": self._first, "second": self._second, "epochs": self._epochs}


class Shuffle:
    """The numbers below n in one random order after another.

    An order is not kept in the state but drawn again, from the state that the generator had before it was drawn.
    """

    def __init__(self, n: int, generator: torch.Generator) -> None:
        self._n, self._generator = n, generator
        self._before = generator.get_state()
        self._order, self._at = torch.arange(0), 0  # nothing is drawn before it is needed

    def endless(self, size: int) -> Tensor:
        """The next `size` numbers; where an order ends, the next one follows."""
        taken = self._take(size)
        while len(taken) < size:
            self._draw()
            taken = torch.cat([taken, self._take(size - len(taken))])
        return taken

    def in_epochs(self, size: int) -> Tensor:
        """The next `size` numbers of one order; if it holds fewer, they are dropped. At most n of them."""
        if self._at + size > len(self._order):
            self._draw()
        return self._take(size)

    def state_dict(self) -> dict[str, Tensor]:
        return {"before": self._before, "at": torch.tensor(self._at)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Leaves the generator after the order; whoever shares it sets it right."""
        self._generator.set_state(state["before"])
        self._order, self._at = torch.arange(0), 0
        if int(state["at"]) > 0:
            self._draw()
        self._at = int(state["at"])

    def _take(self, size: int) -> Tensor:
        taken = self._order[self._at : self._at + size]
        self._at += len(taken)
        return taken

    def _draw(self) -> None:
        self._before = self._generator.get_state()
        self._order, self._at = torch.randperm(self._n, generator=self._generator), 0
