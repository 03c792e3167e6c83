"""Tools for agents over the Model Context Protocol: the saved groups and the tables of one folder. Nothing is written."""

from __future__ import annotations

import functools
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from inbedder.classification.classifier import classify
from inbedder.embedder import InBedder
from inbedder.errors import InbedderError, InputError, describe_error, format_value, import_extra
from inbedder.grouping.assign.grouping import Grouping
from inbedder.grouping.clustering import cluster
from inbedder.grouping.partition.group_distances import measure_fit
from inbedder.grouping.stored.saved_files import METADATA_FILE
from inbedder.grouping.stored.stored_groups import StoredGroup
from inbedder.io.cell_values import to_json_value
from inbedder.io.chat_messages import clip_middle
from inbedder.io.tables import READABLE_TYPES, Table, read_table

MAX_FILE_BYTES = 200 << 20
"""Maximum size of a table."""
MAX_TEXTS = 20_000
"""Maximum number of texts of a table."""
MAX_ITEMS = 50
"""Maximum number of texts, words or files that a tool returns per list."""
MAX_CATEGORIES = 100
MAX_TEXT_CHARACTERS = 600
"""Maximum length of a text that a tool returns; longer ones are cut in the middle."""
MAX_LISTED_FILES = 500
"""Maximum number of files that are listed."""
INSTRUCTIONS = (
    "Groups texts by what a language model answers to a question about each. Start with list_files. Ask a table a new question "
    "with ask_table; look at saved groups with list_groups, group_members and compare_groups. Paths are relative to the folder."
)

Traces = Literal["conversation", "step"] | None


class FolderTools:
    r"""The tools for one folder. Each is a method with plain arguments that returns JSON's types.

    Example:
        >>> from pathlib import Path
        >>> from inbedder.integrations.mcp_tools import FolderTools
        >>> _ = Path("reviews.csv").write_text("text\nThe soup was cold.\nLovely soup!\nThe bus was late.\n")
        >>> answer = FolderTools(".").ask_table("reviews.csv", "What is it about?", groups=2)
        >>> answer["texts"], sum(group["texts"] for group in answer["groups"])
        (3, 3)
    """

    def __init__(self, folder: str | os.PathLike[str], model: str | InBedder = "mini", **model_options: Any) -> None:
        """Set the folder and the model, which is loaded at its first use.

        Args:
            folder: The folder; no tool reads anything outside it.
            model: An ``InBedder``, or a bundled model's name, a folder or a hub id.
            **model_options: Keyword arguments of ``InBedder``.

        Raises:
            InputError: If the folder does not exist.
        """
        self.folder = Path(folder).expanduser().resolve()
        if not self.folder.is_dir():
            raise InputError(f"{format_value(str(folder))} is not a folder.")
        self.model = model
        self.model_options = model_options
        self._lock = threading.Lock()

    def list_files(self) -> dict[str, Any]:
        """List the tables and the folders of saved groups."""
        tables: list[str] = []
        groups: list[str] = []
        for path, folders, names in os.walk(self.folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            relative = Path(path).relative_to(self.folder)
            if METADATA_FILE in names:
                groups.append(str(relative))
                continue
            tables += [str(relative / name) for name in sorted(names) if _is_table(name) and self._is_inside(Path(path, name))]
            if len(tables) + len(groups) > MAX_LISTED_FILES:
                break
        return {"tables": tables[:MAX_LISTED_FILES], "saved_groups": groups[:MAX_LISTED_FILES]}

    def list_groups(self, saved_groups: str) -> dict[str, Any]:
        """List the groups of a folder that `inbedder cluster --save` wrote: number, name, size, keywords, answers, examples."""
        grouping = self._load_grouping(saved_groups)
        total = max(1, sum(group.size for group in grouping.groups))
        groups = [
            {"group": number, **_describe_group(group), "share": round(group.size / total, 3)}
            for number, group in enumerate(grouping.groups, start=1)
        ]
        return {"question": grouping.question, "texts": total, "groups": groups}

    def group_members(
        self,
        saved_groups: str,
        group: int,
        table: str,
        limit: int = 20,
        columns: Sequence[str] = (),
        text_column: str | None = None,
        traces: Traces = None,
    ) -> dict[str, Any]:
        """List the rows of a table that belong to a saved group, the most typical first.

        `columns` names columns to return with each text, such as an id. `traces` reads files of agents' traces.
        """
        grouping = self._load_grouping(saved_groups, with_model=True)
        stored = _find_group(grouping, group)
        rows = self._read_table(table, text_column, traces)
        assignment = grouping.assign(rows.texts, show_progress_bar=False)
        members = np.flatnonzero((assignment.labels == group - 1) & assignment.fits)
        ordered = members[np.argsort(-assignment.typicality[members], kind="stable")]
        listed = _list_rows(rows, ordered[: _bound(limit)], columns, assignment.answers)
        return {"group": group, "name": stored.name, "texts": len(members), "of": len(rows.texts), "members": listed}

    def compare_groups(self, saved_groups: str, first: int, second: int) -> dict[str, Any]:
        """Say what distinguishes two saved groups: keywords that only one has, and answers by the difference of their shares."""
        grouping = self._load_grouping(saved_groups)
        pair = [_find_group(grouping, number) for number in (first, second)]
        shares = [{name: count / max(1, sum(group.answers.values())) for name, count in group.answers.items()} for group in pair]
        names = sorted({*shares[0], *shares[1]}, key=lambda name: -abs(shares[0].get(name, 0) - shares[1].get(name, 0)))
        answers = [
            {"answer": name, "first": round(shares[0].get(name, 0), 3), "second": round(shares[1].get(name, 0), 3)}
            for name in names[:MAX_ITEMS]
        ]
        keywords = [[word for word in pair[i].keywords if word not in pair[1 - i].keywords] for i in (0, 1)]
        return {
            "question": grouping.question,
            "first": {"group": first, **_describe_group(pair[0]), "only_keywords": keywords[0]},
            "second": {"group": second, **_describe_group(pair[1]), "only_keywords": keywords[1]},
            "answers": answers,
        }

    def ask_table(
        self,
        table: str,
        question: str,
        groups: int | None = None,
        examples: int = 3,
        columns: Sequence[str] = (),
        text_column: str | None = None,
        traces: Traces = None,
    ) -> dict[str, Any]:
        """Ask a question about every text of a table and group the texts by the answers.

        Returns the groups with names, shares, answers and examples. `groups` sets their number; by default it is chosen.
        `columns` names columns to return with each example. `traces` reads files of agents' traces.
        """
        rows = self._read_table(table, text_column, traces)
        result = cluster(rows.texts, question, self._get_model(), k="auto" if groups is None else groups, show_progress_bar=False)
        fit = np.nan_to_num(measure_fit(result.embeddings, result.labels))  # NaN with one group
        described = []
        for number, (name, size) in enumerate(zip(result.names, result.sizes, strict=True)):
            members = np.flatnonzero(result.labels == number)
            central = members[np.argsort(-fit[members], kind="stable")][: _bound(examples)]
            counts = Counter(result.answers[row] for row in members if result.answers[row])
            described.append(
                {
                    "group": number + 1,
                    "name": name,
                    "texts": size,
                    "share": round(size / len(rows.texts), 3),
                    "keywords": result.keywords[number][:MAX_ITEMS],
                    "answers": dict(counts.most_common(10)),
                    "examples": _list_rows(rows, central, columns, result.answers),
                }
            )
        return {"question": result.instruction, "texts": len(rows.texts), "groups": described, "notes": result.notes}

    def classify_table(
        self,
        table: str,
        question: str,
        categories: Sequence[str],
        allow_other: bool = False,
        examples: int = 3,
        columns: Sequence[str] = (),
        text_column: str | None = None,
        traces: Traces = None,
    ) -> dict[str, Any]:
        """Classify every text of a table into categories that you name, by its answer to a question.

        Returns each category's share and examples, the best first. `allow_other` adds "none of these".
        """
        if not 2 <= len(categories) <= MAX_CATEGORIES:
            raise InputError(f"{len(categories)} categories. Give from 2 to {MAX_CATEGORIES}.")
        rows = self._read_table(table, text_column, traces)
        score = "auto" if allow_other else None
        result = classify(
            rows.texts, question, list(categories), model=self._get_model(), min_score=score, show_progress_bar=False
        )
        names, best = np.array(result.names), result.scores.max(axis=1)
        described = []
        for name, count in result.count_texts().items():
            members = np.flatnonzero(names == name)
            central = members[np.argsort(-best[members], kind="stable")][: _bound(examples)]
            share = round(count / len(rows.texts), 3)
            described.append({"category": name, "texts": count, "share": share, "examples": _list_rows(rows, central, columns)})
        return {"question": question, "texts": len(rows.texts), "categories": described}

    def _get_model(self) -> InBedder:
        """Load the model once, whichever thread comes first."""
        with self._lock:
            if not isinstance(self.model, InBedder):
                self.model = InBedder(self.model, **self.model_options)
            return self.model

    def _is_inside(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self.folder)

    def _find_path(self, name: str) -> Path:
        """Return the path of a file or folder, which links may not lead out of the folder."""
        path = self.folder / name
        if "\0" in name or not self._is_inside(path):
            raise InputError(f"{format_value(name)} is outside the folder. Give a path relative to it, as list_files returns.")
        if not path.exists():
            raise InputError(f"{format_value(name)} does not exist. list_files returns what there is.")
        return path

    def _read_table(self, name: str, text_column: str | None, traces: str | None) -> Table:
        path = self._find_path(name)
        if not path.is_file():
            raise InputError(f"{format_value(name)} is no file. list_files returns the tables.")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{format_value(name)} is larger than {MAX_FILE_BYTES >> 20} MiB. Use inbedder cluster --save.")
        table = read_table(str(path), text_column, skip_bad=True, traces=traces)
        if len(table.texts) > MAX_TEXTS:
            raise InputError(f"{format_value(name)} has more than {MAX_TEXTS:,} texts. Use inbedder cluster --save.")
        return table

    def _load_grouping(self, name: str, *, with_model: bool = False) -> Grouping:
        return Grouping.load(self._find_path(name), self._get_model() if with_model else None)


def _is_table(name: str) -> bool:
    path = Path(name)
    return not name.startswith(".") and (path.suffix.lower() in READABLE_TYPES or path.suffix.lower() == ".gz")


def _bound(limit: int) -> int:
    return min(max(limit, 0), MAX_ITEMS)


def _find_group(grouping: Grouping, number: int) -> StoredGroup:
    if not 1 <= number <= len(grouping.groups):
        raise InputError(f"There is no group {number}. The groups are numbered from 1 to {len(grouping.groups)}.")
    return grouping.groups[number - 1]


def _describe_group(group: StoredGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "texts": group.size,
        "keywords": group.keywords,
        "answers": dict(list(group.answers.items())[:10]),
        "examples": [clip_middle(text, MAX_TEXT_CHARACTERS) for text in group.examples],
    }


def _list_rows(
    table: Table, positions: Any, columns: Sequence[str], answers: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """List rows with their number in the file, their text and some of their columns."""
    values = {name: table.column(name) for name in columns}
    return [
        {
            "row": table.rows[i],
            "text": clip_middle(table.texts[i], MAX_TEXT_CHARACTERS),
            **({} if answers is None else {"answer": answers[i]}),
            **{name: to_json_value(cells[i]) for name, cells in values.items()},
        }
        for i in map(int, positions)
    ]


def make_server(tools: FolderTools) -> Any:
    """Make the MCP server (``mcp.server.MCPServer``) of the tools.

    Args:
        tools: The tools.

    Returns:
        The server; its method ``run`` serves over standard input and output.

    Raises:
        MissingExtraError: If the extra ``mcp`` is not installed.
    """
    server_module = import_extra("mcp.server", "mcp")
    tool_error = import_extra("mcp.server.mcpserver.exceptions", "mcp").ToolError
    annotations = import_extra("mcp.types", "mcp").ToolAnnotations(read_only_hint=True, open_world_hint=False)
    server = server_module.MCPServer("inbedder", instructions=INSTRUCTIONS, log_level="ERROR")
    methods = (
        tools.list_files,
        tools.list_groups,
        tools.group_members,
        tools.compare_groups,
        tools.ask_table,
        tools.classify_table,
    )
    for method in methods:
        server.add_tool(_with_tool_errors(method, tool_error), annotations=annotations)
    return server


def _with_tool_errors(method: Callable[..., dict[str, Any]], tool_error: type[Exception]) -> Callable[..., dict[str, Any]]:
    """Return a method whose errors reach the agent as text, without a traceback."""

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return dict(to_json_value(method(*args, **kwargs)))
        except InbedderError as error:
            raise tool_error(str(error)) from None
        except Exception as error:
            raise tool_error(f"Unexpected error: {describe_error(error)}") from None

    return run
