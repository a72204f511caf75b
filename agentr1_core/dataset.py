"""Load tasks from parquet, jsonl, json, csv and arrow files, saved data sets, or a hub id.

The job builder calls ``load_tasks``; rows in the de-facto columns load unchanged and every other column is kept.
Nothing here interprets a row beyond checking that it can be used; ``Task`` gives the columns their types.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentr1_core.errors import DataError
from agentr1_core.task import Task

#: File endings and the builder of ``datasets`` that reads them.
_BUILDERS: Mapping[str, str] = {
    ".parquet": "parquet",
    ".jsonl": "json",
    ".jsonl.gz": "json",
    ".json": "json",
    ".json.gz": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".arrow": "arrow",
}
#: Owner, name, and the configuration of a data set that has several.
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+(:[\w.-]+)?")


def load_tasks(
    source: str | Path,
    *,
    split: str | Sequence[str] = "train",
    limit: int | None = None,
    shuffle_seed: int | None = None,
    columns: Iterable[str] = (),
) -> list[Task]:
    """The rows of a data set as tasks.

    Args:
        source: A file, a folder (saved by ``datasets``, or holding data files), or a hub id (``owner/name``, or
            ``owner/name:configuration``).
        split: Split to take where there are several; of a sequence the first that exists.
        limit: Rows at most, after shuffling.
        shuffle_seed: Shuffle by this seed; ``None`` keeps the order.
        columns: Columns that every row must have.

    Raises:
        DataError: The source is missing or unreadable, has no such split or column, or no rows.
    """
    rows = load_rows(source, split=split, limit=limit, shuffle_seed=shuffle_seed, columns=columns)
    tasks = [Task(row, f"{_short(source)} row {number}") for number, row in rows]
    for task in tasks:
        # A column that cannot be read is told now, with its row, instead of in the middle of a run.
        _ = task.prompt, task.env_kwargs, task.tools_kwargs, task.extra_info, task.ground_truth
    return tasks


def load_rows(
    source: str | Path,
    *,
    split: str | Sequence[str] = "train",
    limit: int | None = None,
    shuffle_seed: int | None = None,
    columns: Iterable[str] = (),
) -> list[tuple[int, dict[str, Any]]]:
    """The rows of a data set with their numbers from 0; arguments and errors as for ``load_tasks``."""
    table = _open(source, (split,) if isinstance(split, str) else tuple(split))
    if len(table) == 0:
        raise DataError(f"The data set '{source}' has no rows.", "Give a data set with at least one row.")
    for column in columns:
        if column not in table.column_names:
            near = difflib.get_close_matches(column, table.column_names, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise DataError(
                f"The data set '{source}' has no column '{column}'; its columns are: {', '.join(table.column_names)}.",
                f"Add or rename the column.{hint}",
            )
    numbers = list(range(len(table)))
    if shuffle_seed is not None:
        import random

        random.Random(shuffle_seed).shuffle(numbers)
    return [(number, dict(table[number])) for number in numbers[:limit]]


def _open(source: str | Path, splits: Sequence[str]) -> Any:
    """The data set as a ``datasets.Dataset``."""
    path = Path(source)
    if path.is_file():
        return _open_files([path], source, splits)
    if path.is_dir():
        return _open_folder(path, splits)
    if _HUB_ID.fullmatch(str(source)) and not path.parent.is_dir() and _ending(path) is None:
        return _open_hub(str(source), splits)
    raise DataError(f"There is no data file '{source}'.", _neighbours(path))


def _open_files(files: Sequence[Path], source: str | Path, splits: Sequence[str]) -> Any:
    datasets = _datasets()
    ending = _ending(files[0])
    if ending is None:
        raise DataError(f"The data file '{files[0]}' has an unknown ending.", f"Use one of: {', '.join(_BUILDERS)}.")
    if files[0].stat().st_size == 0:
        raise DataError(f"The data file '{files[0]}' is empty.", "Give a data set with at least one row.")
    builder = _BUILDERS[ending]
    options: dict[str, Any] = {"sep": "\t"} if ending == ".tsv" else {}
    if ending in (".jsonl", ".jsonl.gz", ".json", ".json.gz"):
        return _open_json(files, ending, datasets)
    try:
        return datasets.load_dataset(
            builder, data_files={splits[0]: [str(file) for file in files]}, split=splits[0], **options
        )
    except Exception as error:  # pyarrow, pandas and datasets raise many kinds
        raise _unreadable(source, error) from error


def _open_json(files: Sequence[Path], ending: str, datasets: Any) -> Any:
    """JSON read by hand: rows whose nested columns differ in shape have no common Arrow type, and need none."""
    import gzip
    import json

    rows: list[Any] = []
    for file in files:
        number = 0
        try:
            with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
                if ending.startswith(".jsonl"):
                    for number, line in enumerate(lines, 1):
                        if line.strip():
                            rows.append(_row(json.loads(line), f"'{file}' line {number}"))
                else:
                    rows.extend(_json_document(json.load(lines), file))
        except json.JSONDecodeError as error:
            place = f"line {number}" if ending.startswith(".jsonl") else f"line {error.lineno}"
            raise DataError(
                f"'{file}' {place} is not valid JSON: {error.msg}.",
                "Give one JSON object in each line of a .jsonl file.",
            ) from error
        except (OSError, UnicodeDecodeError, EOFError) as error:
            raise _unreadable(file, error) from error
    return _Rows(rows)


class _Rows(Sequence[dict[str, Any]]):
    """Rows in memory with the two things that ``datasets.Dataset`` is asked for here."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self.column_names = list(dict.fromkeys(column for row in rows for column in row))

    def __getitem__(self, number: Any) -> Any:
        return self._rows[number]

    def __len__(self) -> int:
        return len(self._rows)


def _json_document(document: Any, file: Path) -> list[dict[str, Any]]:
    if isinstance(document, Mapping) and len(document) == 1:
        (inner,) = document.values()
        document = inner if isinstance(inner, list) else [document]
    elif isinstance(document, Mapping):
        document = [document]
    if not isinstance(document, list):
        raise DataError(f"'{file}' holds a {type(document).__name__}.", "Give a list of rows, each an object.")
    return [_row(row, f"'{file}' row {number}") for number, row in enumerate(document)]


def _row(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where} is a {type(value).__name__}, not an object.", "Give each row as a JSON object.")
    return value


def _open_folder(folder: Path, splits: Sequence[str]) -> Any:
    datasets = _datasets()
    if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
        try:
            return _take_split(datasets.load_from_disk(str(folder)), folder, splits)
        except DataError:
            raise
        except Exception as error:  # as above
            raise _unreadable(folder, error) from error
    files = sorted(file for file in folder.rglob("*") if file.is_file() and _ending(file) is not None)
    if not files:
        raise DataError(f"The folder '{folder}' holds no data files.", f"Its files must end in {', '.join(_BUILDERS)}.")
    for split in splits:
        chosen = [file for file in files if re.match(rf"{re.escape(split)}\b|{re.escape(split)}[-_.]", file.name)]
        if chosen:
            return _open_files([file for file in chosen if _ending(file) == _ending(chosen[0])], folder, splits)
    if len({_ending(file) for file in files}) > 1:
        names = ", ".join(file.name for file in files[:8])
        raise DataError(f"The folder '{folder}' holds files of several kinds: {names}.", "Name one of the files.")
    return _open_files(files, folder, splits)


def _open_hub(name: str, splits: Sequence[str]) -> Any:
    hub_id, _, configuration = name.partition(":")
    try:
        return _take_split(_datasets().load_dataset(hub_id, configuration or None), name, splits)
    except DataError:
        raise
    except Exception as error:  # no network, no such data set, a broken script: all kinds
        raise DataError(
            f"'{name}' is no file here, and could not be loaded from the hub: {type(error).__name__}: {error}",
            "Check the spelling, its configuration (owner/name:configuration) and the network, or name a local file.",
        ) from error


def _take_split(loaded: Any, source: str | Path, splits: Sequence[str]) -> Any:
    if not isinstance(loaded, Mapping):
        return loaded
    for split in splits:
        if split in loaded:
            return loaded[split]
    raise DataError(
        f"The data set '{source}' has no split {' or '.join(repr(split) for split in splits)}; "
        f"it has: {', '.join(loaded)}.",
        "Set `data.train_split` or `data.eval_split`.",
    )


def _datasets() -> Any:
    import datasets  # a second: only programs that load data pay for it

    datasets.disable_progress_bars()
    return datasets


def _ending(path: Path) -> str | None:
    name = path.name.lower()
    return next((ending for ending in sorted(_BUILDERS, key=len, reverse=True) if name.endswith(ending)), None)


def _unreadable(source: str | Path, error: Exception) -> DataError:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return DataError(
        f"The data set '{source}' cannot be read: {type(error).__name__}: {first}",
        "Check that the file is whole and that its ending says what it is.",
    )


def _neighbours(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"The folder '{folder}' does not exist either; name an existing file, a folder or a hub id (owner/name)."
    names = [file.name for file in folder.iterdir()]
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(repr(str(folder / name)) for name in near)}?"
    return f"'{folder}' holds: {', '.join(sorted(names)[:8]) or 'nothing'}."


def _short(source: str | Path) -> str:
    path = Path(source)
    return path.name if path.exists() else str(source)
