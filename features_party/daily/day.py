"""One run of the job. Whatever stops it, `current` is a whole model, and the next run goes on.

FOLDER/messages/          what was pulled
FOLDER/models/MOMENT/     a model of each run
FOLDER/runs/MOMENT.json   its record, as `--json` prints it; MOMENT.html beside it is for people
FOLDER/current            the model that is kept: a link into models/
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from features_party.bootstrap import Services
from features_party.daily.comparison import HoldoutComparison, compare, read_all, split
from features_party.daily.pipeline import AFRESH, SEARCHED_EVERY, DailyPipeline
from features_party.integrations.tracking import log_run, require_mlflow
from features_party.models.folder import SavedModel
from features_party.models.trainer import check_learning, default_loss, warm_of
from features_party.pages.models import model_report
from features_party.receive.accepted import AcceptedMessage
from features_party.receive.labels_service import LabelsService
from features_party.receive.pull_since import Patience, pull_since
from features_party.training.progress import part
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import Conflict, InvalidFile, InvalidInput, NotFound, Unavailable
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject
from label_dp.store.folders import write_durably

TODAY, YESTERDAY, UNCHANGED = "today", "yesterday", "unchanged"
FIRST = "the first model of this folder"
NOTHING_NEW = "no message came since the last run; --again trains all the same"


@dataclass(frozen=True)
class Day:
    """Run of a day. `base`: folder of the pipeline's relative paths. `again`: train even without a new message."""

    party: Services
    asked: DailyPipeline
    base: Path
    again: bool = False

    @property
    def folder(self) -> Path:
        return self.base / self.asked.folder

    @property
    def current(self) -> Path:
        return self.folder / "current"

    def run(self, service: LabelsService | None, progress: Progress) -> dict[str, Any]:
        """Run and return the record. `service`: the labels party, if the pipeline pulls. Raises Conflict if another run
        of this folder is active, and the errors of `pull` and `train`; the kept model stays then."""
        check_learning(self.asked.train)
        if self.asked.mlflow is not None:
            require_mlflow()
        with self._alone():
            arrivals = [] if service is None else self._pulled(service, part(progress, 0.0, 0.2))
            messages = self._messages()
            now = datetime.now(UTC)
            records = self._records()
            last = records[0] if records else {}
            record = {
                "moment": f"{now:%Y-%m-%dT%H%M%S}.{now.microsecond // 1000:03d}Z",
                "fresh": [entry["release"] for entry in arrivals if entry["fresh"]],
                "messages": [message.release for message in messages],
                "message_digests": [message.digest for message in messages],
                "rehearsal": messages[0].rehearsed,
                # that of the first run, or a model would be judged on its training examples
                "held_out_key": last.get("held_out_key") or messages[0].release,
            }
            if self.current.exists() and not self.again and last.get("message_digests") == record["message_digests"]:
                model = self.current.resolve()
                return record | {"kept": UNCHANGED, "why": NOTHING_NEW, "model": str(model), "comparison": None}
            return self._trained(record, messages, self._earlier(records, messages), part(progress, 0.2, 0.8))

    def _trained(
        self, record: dict[str, Any], messages: list[AcceptedMessage], earlier: SavedModel | None, progress: Progress
    ) -> dict[str, Any]:
        pipeline, party = self.asked, self.party
        yesterday = party.models.named(str(self.current)) if self.current.exists() else None
        whole = read_all(
            party.settings, self.base, pipeline.feature_patterns, pipeline.id_column, list(pipeline.train.categorical)
        )
        table, held_out = split(whole, pipeline.held_out, str(record["held_out_key"]))
        model, learning = self.folder / "models" / str(record["moment"]), pipeline.train
        card = party.trainer.train(messages, table, learning, model, part(progress, 0.0, 0.9), "daily", earlier=earlier)
        progress("comparing with yesterday's model", 0.95)
        today, comparison = party.models.named(str(model)), None
        if yesterday is not None:
            comparison = compare(today, yesterday, messages, held_out, party.settings.threads)
        takes = not isinstance(comparison, HoldoutComparison) or comparison.takes_over(pipeline.replace)
        before = str(self.current.resolve()) if yesterday is not None else None
        if takes:
            self._keep(model)
        record |= {
            "kept": TODAY if takes else YESTERDAY,
            "why": _why(comparison, pipeline.replace, takes),
            "model": str(self.current.resolve()),
            "today": str(model),
            "warm_start": None if earlier is None else str(earlier.folder),
            "yesterday": before,
            "comparison": comparison.as_json() if isinstance(comparison, HoldoutComparison) else None,
            "trained_rows": card["report"]["matched"],
            "held_out_examples": held_out.rows,
            "error_estimate": card["report"]["error_estimate"],
            "unmatched_warning": card["report"]["unmatched_warning"],
            "epsilon": card["epsilon"],
            "seconds": card["seconds"],
        }
        if pipeline.mlflow is not None:
            tags = {"label_dp.kept": str(record["kept"]), "label_dp.why": str(record["why"])}
            try:
                record["mlflow"] = log_run(today, pipeline.mlflow, name=str(record["moment"]), more=tags)
            except Unavailable as error:  # the model is kept nevertheless
                record["mlflow"] = {"problem": error.detail}
        (self.folder / "runs").mkdir(exist_ok=True)
        page = self.folder / "runs" / f"{record['moment']}.html"
        model_report(today, page, remark=f"Kept is the model of {record['kept']}: {record['why']}.")
        record["report"] = str(page)
        data = json.dumps(record, ensure_ascii=False, indent=2).encode() + b"\n"
        write_durably(self.folder / "runs" / f"{record['moment']}.json", data)
        return record

    def _pulled(self, service: LabelsService, progress: Progress) -> list[dict[str, Any]]:
        wish = self.asked.pull
        assert wish is not None
        arrivals = self.party.arrivals(self._key(), "daily")
        messages = pull_since(
            service,
            wish.since,
            wish.population,
            arrivals.choose_key,
            self.party.settings.name,
            self.folder / "messages",
            Patience(wish.wait),
            progress,
            bring=partial(arrivals.pull, service),
            arrived=arrivals.message,
        )
        arrivals.acknowledge(service)
        if not messages:
            raise InvalidInput(f"Nothing was published for us since {wish.since}, or for that population.")
        return messages

    def _messages(self) -> list[AcceptedMessage]:
        """Return the newest messages, oldest first."""
        named = [self.folder / "messages"] if self.asked.pull else [self.base / path for path in self.asked.messages]
        accepted_messages = self.party.messages.accept_all(named, self._key())
        accepted_messages.sort(key=lambda message: (message.manifest.created, message.release))
        return accepted_messages[-self.asked.newest :]

    def _earlier(self, records: list[JsonObject], messages: list[AcceptedMessage]) -> SavedModel | None:
        """Return the model whose choices this run takes over, None to search among all: the one that the pipeline
        names, else that of the last search, if it is recent and was one for such a model.

        Choices go no further than one model, so its messages are all that today's depends on besides its own.
        """
        learning, models = self.asked.train, self.party.models
        if learning.warm_start is not None:
            return None if learning.warm_start == AFRESH else models.named(learning.warm_start)
        search = next((record for record in records if record["warm_start"] is None), None)
        if search is None or search["rehearsal"] != messages[0].rehearsed:
            return None
        try:
            earlier = models.named(str(self.folder / "models" / str(search["moment"])))
            warm_of(earlier, learning.model, learning.loss or default_loss(messages))
        except (InvalidInput, NotFound):
            return None
        return earlier

    def _records(self) -> list[JsonObject]:
        """Return the records of the last runs that trained, newest first. Raises InvalidFile."""
        records = []
        for path in sorted((self.folder / "runs").glob("*.json"), reverse=True)[: SEARCHED_EVERY - 1]:
            try:
                record = json.loads(path.read_bytes())
                needed = ("moment", "rehearsal", "held_out_key", "message_digests", "warm_start")
                records.append({name: record[name] for name in needed})
            except (OSError, ValueError, KeyError, TypeError):
                raise InvalidFile(f"The record '{path}' of an earlier run is damaged; remove it.") from None
        return records

    def _key(self) -> VerifyingKey | None:
        return None if self.asked.labels_key is None else VerifyingKey.load(self.base / self.asked.labels_key)

    def _keep(self, model: Path) -> None:
        """Replace `current` atomically: its readers have the old model or the new one."""
        link = self.folder / ".current"
        link.unlink(missing_ok=True)
        link.symlink_to(model.relative_to(self.folder))
        link.replace(self.current)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder, os.O_RDONLY)
        except OSError as error:
            raise InvalidInput(f"The folder '{self.folder}' cannot be made ({error.strerror}).") from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(f"Another run of '{self.folder}' goes on; wait for its end.") from None
            yield
        finally:
            os.close(handle)


def _why(comparison: HoldoutComparison | str | None, rule: str, takes: bool) -> str:
    if comparison is None:
        return FIRST
    if isinstance(comparison, str):
        return comparison
    gain, sign = comparison.gain, "below" if comparison.gain.estimate >= 0 else "above"
    sentence = f"today's {comparison.measure} is {abs(gain.estimate):.6g} {sign} yesterday's"
    sentence += f" (gain, 95 %: {gain.low:.6g} … {gain.high:.6g})"
    return sentence + ("" if takes else f", and only one that is {rule.replace('-', ' ')} takes over")
