"""Training of the paper's network (its appendix E) with PyTorch, on labels that may be mostly noise.

RMSProp at 0.001 with cosine decay and L2 of 1e-4 on weights and embeddings. Batches of 8192, as in the paper; for fewer
rows a fortieth, at least 256, but all rows if less than one epoch is wanted. Labels are centred and scaled, and the
output layer starts at zero, so that an untrained network predicts the mean.

Epochs: as requested, else enough for about

    steps = 300 * (n_eff/10 000)^0.5 / (1 - s)
            at most 1500 * (n_eff/10 000)^0.5 below n_eff = 10 000, then 1500, beyond 100 000 1500 * (n_eff/100 000)^0.7

with n_eff and s of training/capacity.py: the first steps learn the signal, and later ones the noise. With unbiased
labels this is only the maximum: the epoch of the least error on a held-out fifth is chosen, and as many epochs are then
trained on all rows. Under the log loss that error is the likelihood of held-out outputs, for any channel.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training.capacity import Capacity
from features_party.training.draws import dealt, seed
from features_party.training.encoding import Float32
from features_party.training.learner import Sample, Task, Watch
from features_party.training.learners.mlp_inputs import EMBEDDING, HIDDEN, InputEncoder, Int32
from features_party.training.likelihood import RowLikelihood
from features_party.training.links import LogisticScore, PoissonScore
from features_party.training.progress import part
from features_party.training.threads import openmp_threads
from label_dp.errors import InvalidInput
from label_dp.installing import pip_install
from label_dp.progress import Progress

FloatArray = npt.NDArray[np.float64]

HELD_OUT = 5  # one row in as many
MIN_ROWS = 20
WATCHED_ROWS = 4096  # sample on which the error after each epoch is measured
REPORTS = 1000  # of progress in a training
CORNER = 0.1  # rounding of the absolute loss's corner, in standard deviations of the signal


@dataclass(frozen=True)
class NetworkSettings:
    """Training settings. `epochs` and `batch_size` None: chosen as above. `smallest_count`: rarer values share one
    embedding."""

    epochs: int | None = None
    batch_size: int | None = None
    smallest_count: int = 5
    learning_rate: float = 1e-3
    l2: float = 1e-4
    seed: int = 0

    def check(self) -> None:
        """Raise InvalidInput for invalid settings."""
        if self.epochs is not None and self.epochs < 0:
            raise InvalidInput("The number of epochs of the network must not be negative.")
        if (self.batch_size is not None and self.batch_size < 1) or self.smallest_count < 1:
            raise InvalidInput("The network's batch size and its smallest count of a category must be at least 1.")


def check_torch() -> None:
    """Raise InvalidInput if PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise InvalidInput(f"The model 'mlp' is trained with PyTorch: {pip_install('torch')}.")


Fitted = tuple[
    InputEncoder, Float32, tuple[tuple[Float32, Float32], ...], float, float, PoissonScore | LogisticScore | None, int
]


def fit_network(sample: Sample, task: Task, progress: Progress) -> Fitted:
    """Fit the parts of a network for a loss: squared, absolute, poisson (log link, capped score) or log (through
    channels).

    Trains on a GPU if there is one; on a CPU the same arguments give the same network. Raises InvalidInput (PyTorch
    missing, `task.settings`, which are NetworkSettings or None), and whatever `progress` raises.
    """
    check_torch()
    settings: NetworkSettings = task.settings or NetworkSettings()
    settings.check()
    threads = openmp_threads(task.threads)
    import torch

    encoded, labels, capacity = sample.encoded, sample.labels, task.capacity
    n, mean = len(labels), sample.mean
    inputs, embeddings = InputEncoder.learn(encoded, task.sizes, settings.smallest_count)
    link: PoissonScore | LogisticScore | None = None
    offset, scale = mean, math.sqrt(capacity.signal_share * capacity.label_variance) or 1.0
    if isinstance(task.told, RowLikelihood):
        link, offset, scale = task.told.link, task.told.start, 1.0
    elif task.loss == "poisson":
        link = PoissonScore.around(mean, *task.bounds)
        offset, scale = link.base(), 1.0
    elif task.loss == "absolute":
        offset = float(np.median(labels))
    numbers, looked_up = inputs.numbers(encoded.numbers), inputs.looked_up(encoded.codes)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        if isinstance(link, LogisticScore):
            assert isinstance(task.told, RowLikelihood)
            target: _Target = LikelihoodTarget(torch, task.told)
        else:
            target = _Target(torch, labels, sample.row_weights, task.loss, link, offset, scale)
        longest, batch = _schedule(n, capacity, settings)
        own = replace(settings, seed=seed(sample.draws, f"network {settings.seed}"))
        training = _Training(torch, numbers, looked_up, target, inputs.width, embeddings, batch, own, task.watch)
        epochs, begun = longest, 0.0
        if (task.unbiased or isinstance(target, LikelihoodTarget)) and settings.epochs is None and longest > 0:
            test, begun = dealt(sample.draws, HELD_OUT, "trial") == 0, 0.5
            errors = training.trial(~test, test, longest, lambda what, share: progress(f"trial, {what}", 0.5 * share))
            epochs = int(np.argmin(errors))
        judge = training.judge_some(n)
        parameters = training.run(None, longest, epochs, part(progress, begun, 1.0 - begun), judge)
    finally:
        torch.set_num_threads(before)
    embedding, *layers = (value.cpu().numpy() for value in parameters)
    _place_unseen(embedding, looked_up)
    return inputs, embedding, tuple(zip(layers[::2], layers[1::2], strict=True)), offset, scale, link, epochs


def _place_unseen(embedding: Float32, looked_up: Int32) -> None:
    """Set out-of-vocabulary items without a training row to the mean over the rows, in place."""
    for at in range(looked_up.shape[1]):
        counts = np.bincount(looked_up[:, at], minlength=len(embedding))
        if counts[at] == 0:
            embedding[at] = counts @ embedding / len(looked_up)


def _schedule(rows: int, capacity: Capacity, settings: NetworkSettings) -> tuple[int, int]:
    """Return the epochs of the cosine schedule and the rows of a batch."""
    batch = settings.batch_size or min(8192, max(256, rows // 40))
    if settings.epochs is not None:
        return settings.epochs, batch
    n, share = capacity.effective_rows, capacity.signal_share
    most = 1500.0 * max(min(1.0, n / 10_000.0) ** 0.5, (n / 100_000.0) ** 0.7)
    steps = round(min(300.0 * (n / 10_000.0) ** 0.5 / max(1.0 - share, 1e-9), most))
    if rows < MIN_ROWS or steps == 0:
        return 0, batch
    # average the noise by fewer and larger batches instead
    batch = settings.batch_size or max(batch, math.ceil(rows / steps))
    return max(1, round(steps / math.ceil(rows / batch))), batch


class _Target:
    """Losses of an output against the labels of rows, in units of the signal: target = (label - offset) / scale."""

    def __init__(
        self,
        torch: Any,
        labels: FloatArray,
        weights: FloatArray,
        loss: str,
        link: PoissonScore | None,
        offset: float,
        scale: float,
    ) -> None:
        device = _device(torch)
        self.torch, self.loss, self.link, self.offset = torch, loss, link, offset
        values = labels / link.scale if link is not None else (labels - offset) / scale
        self.values = torch.from_numpy(values.astype(np.float32)).to(device)
        self.weights = torch.from_numpy(weights.astype(np.float32)).to(device)

    def mean_loss(self, output: Any, rows: Any) -> Any:
        """Return the weighted mean loss over rows; for Poisson a loss of the same gradient, since the score is
        capped."""
        target, weights = self.values[rows], self.weights[rows]
        if self.link is not None:
            return (weights * 2.0 * (self._mean(output.detach()) - target) * output).mean()
        return (weights * self._error(output, target)).mean()

    def error(self, output: Any, rows: Any) -> float:
        """Return the weighted sum over rows, to compare networks by."""
        target, weights = self.values[rows], self.weights[rows]
        if self.link is None:
            return float((weights * self._error(output, target)).double().sum())
        mean = self._mean(output)
        return float((weights * (mean - target * mean.log())).double().sum())

    def _error(self, output: Any, target: Any) -> Any:
        difference = output - target
        if self.loss == "squared":
            return difference * difference
        return 2.0 * CORNER * ((CORNER * CORNER + difference * difference).sqrt() - CORNER)

    def _mean(self, output: Any) -> Any:
        assert self.link is not None
        return (output + self.offset).clamp(self.link.low, self.link.high).exp() / self.link.scale


class LikelihoodTarget(_Target):
    """Likelihood of the outputs, through the channel of each row (training/likelihood.py), in units of an average row's
    information.

    The held-out error is that of the observed outputs, for every channel.
    """

    def __init__(self, torch: Any, told: RowLikelihood) -> None:
        self.ends, self.offset = (told.link.low, told.link.high), told.start
        self.unit = 2.0 / told.information  # a row's Hessian is 2, as for a square
        self.zero, self.one = (torch.from_numpy(p.astype(np.float32)).to(_device(torch)) for p in told.rows)

    def mean_loss(self, output: Any, rows: Any) -> Any:
        return self.unit * self._losses(output, rows).mean()

    def error(self, output: Any, rows: Any) -> float:
        return float(self._losses(output, rows).double().sum())

    def _losses(self, output: Any, rows: Any) -> Any:
        score = (output + self.offset).clamp(*self.ends)
        # both shares separately: in float32 1 − p would lose the digits of a small one
        likely = score.neg().sigmoid() * self.zero[rows] + score.sigmoid() * self.one[rows]
        return -likely.clamp_min(1e-30).log()


class _Training:
    """The network's tensors on the device, and the training loop. Parameters: the embedding, then weights and bias by
    layer."""

    def __init__(
        self,
        torch: Any,
        numbers: Float32,
        looked_up: Int32,
        target: _Target,
        width: int,
        embeddings: int,
        batch_size: int,
        settings: NetworkSettings,
        watch: Watch,
    ) -> None:
        self.torch, self.target, self.settings, self.watch = torch, target, settings, watch
        self.device = _device(torch)
        self.numbers = torch.from_numpy(np.ascontiguousarray(numbers)).to(self.device)
        self.looked_up = torch.from_numpy(np.ascontiguousarray(looked_up)).to(self.device)
        self.width, self.embeddings, self.batch_size = width, embeddings, batch_size

    def run(self, rows: Any, schedule: int, epochs: int, progress: Progress, after_epoch: Any = None) -> list[Any]:
        """Train; returns the parameters after `epochs` of a schedule of `schedule` epochs over `rows` (bool[n]; None
        for all)."""
        torch, settings = self.torch, self.settings
        # on the CPU for any device, so that its order is the same everywhere
        random = torch.Generator().manual_seed(settings.seed)
        parameters = self._initial(random)
        rows_used = torch.arange(len(self.numbers)) if rows is None else torch.from_numpy(np.flatnonzero(rows))
        batches = max(1, math.ceil(len(rows_used) / self.batch_size))
        weights, biases = [p for p in parameters if p.ndim == 2], [p for p in parameters if p.ndim == 1]
        optimizer = torch.optim.RMSprop(
            # half the gradient of l2 * (sum of squares) is the optimizer's weight decay
            [{"params": weights, "weight_decay": 2.0 * settings.l2}, {"params": biases}],
            lr=settings.learning_rate,
        )
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(1, schedule * batches))
        every = max(1, epochs * batches // REPORTS)
        for epoch in range(epochs):
            order = rows_used[torch.randperm(len(rows_used), generator=random)].to(self.device)
            for at, batch in enumerate(order.tensor_split(batches)):
                step = epoch * batches + at
                if step % every == 0:
                    progress(f"epoch {epoch + 1} of {epochs}", step / (epochs * batches))
                optimizer.zero_grad()
                self.target.mean_loss(self._outputs(parameters, batch), batch).backward()
                optimizer.step()
                decay.step()
            if after_epoch is not None:
                after_epoch(parameters)
        return [parameter.detach() for parameter in parameters]

    def judge_some(self, rows: int) -> Any:
        """Return a callback for each epoch of the whole training, which reports the error on some rows."""
        some = self.torch.arange(0, rows, max(1, rows // WATCHED_ROWS), device=self.device)
        done = 0

        def judge(parameters: list[Any]) -> None:
            nonlocal done
            done += 1
            with self.torch.no_grad():
                self.watch(done, self._error(parameters, some) / len(some))

        return judge

    def trial(self, rows: Any, held: Any, epochs: int, progress: Progress) -> list[float]:
        """Return errors on the rows `held` of networks trained on `rows` for 0, 1, ... `epochs` epochs."""
        torch = self.torch
        chunks = torch.from_numpy(np.flatnonzero(held)).to(self.device).split(self.batch_size)
        errors: list[float] = []
        rows_held = max(1, sum(map(len, chunks)))

        def judge(parameters: list[Any] | None) -> None:
            with torch.no_grad():
                errors.append(sum(self._error(parameters, chunk) for chunk in chunks))
            self.watch(len(errors) - 1, errors[-1] / rows_held)

        judge(None)
        self.run(rows, epochs, epochs, progress, judge)
        return errors

    def _error(self, parameters: list[Any] | None, rows: Any) -> float:
        nothing = self.torch.zeros(len(rows), device=self.device)
        return self.target.error(nothing if parameters is None else self._outputs(parameters, rows), rows)

    def _initial(self, random: Any) -> list[Any]:
        """Draw Glorot's uniform weights; zeros in the last layer, so that an untrained network predicts the mean."""
        torch = self.torch

        def uniform(rows: int, columns: int, bound: float) -> Any:
            return (torch.rand(rows, columns, generator=random) * 2.0 - 1.0) * bound

        parameters = [uniform(self.embeddings, EMBEDDING, 0.05)]
        for before, after in itertools.pairwise((self.width, *HIDDEN, 1)):
            bound = math.sqrt(6.0 / (before + after)) if after > 1 else 0.0
            parameters += [uniform(before, after, bound), torch.zeros(after)]
        return [parameter.to(self.device).requires_grad_() for parameter in parameters]

    def _outputs(self, parameters: list[Any], rows: Any) -> Any:
        torch = self.torch
        embedding, *layers = parameters
        vectors = torch.nn.functional.embedding(self.looked_up[rows], embedding)
        values = torch.cat([self.numbers[rows], vectors.flatten(1)], dim=1)
        for at in range(0, len(layers), 2):
            values = torch.addmm(layers[at + 1], values, layers[at])
            if at + 2 < len(layers):
                values = values.relu()
        return values[:, 0]


def _device(torch: Any) -> Any:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
