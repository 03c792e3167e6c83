import base64
import hashlib
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inbedder.encoding.guided import GuidedVectors
from inbedder.errors import InputError
from inbedder.grouping.clustering import ClusterResult
from inbedder.grouping.describe.explain import measure_agreement
from inbedder.grouping.describe.loose_groups import LOOSE_NOTE
from inbedder.grouping.partition.number_of_groups import Choice
from inbedder.grouping.report import maps, views
from inbedder.grouping.report.page import render_report, save_report

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(1)> & \"quoted\" 'too' {{ 7 * 7 }} <!-- ]]>"


class Page(HTMLParser):
    """The tags, scripts and table cells of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.cells: list[list[str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.scripts and data.strip():
            self.scripts[-1] += data
        if self.cells and self.cells[-1] and self.lasttag in ("td", "th", "bdi", "b", "i", "circle", "path"):
            self.cells[-1][-1] += data

    def attributes_of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.scripts[0]))


def grouping(labels: Sequence[int], **changes: Any) -> ClusterResult:
    """Make a result of texts "text i" with answers "answer LABEL" and vectors around one axis per cluster."""
    count, clusters = len(labels), max(labels) + 1
    rows = np.array(labels, dtype=np.int64)
    noise = np.random.default_rng(7).normal(scale=0.1, size=(count, 8))
    values: dict[str, Any] = {
        "instruction": "What is it?",
        "texts": [f"text {i}" for i in range(count)],
        "labels": rows,
        "keywords": [[f"word{i}", f"more{i}"] for i in range(clusters)],
        "examples": [[f"example {i}"] for i in range(clusters)],
        "answers": [f"answer {label}" for label in labels],
        "embeddings": (np.eye(clusters, 8)[rows] + noise).astype(np.float32),
    }
    return ClusterResult(**(values | changes))


def find_dots(page: str) -> list[str]:
    """List the dots of all maps."""
    return [
        mark for part in re.findall(r'<g class="dots".*?</g>', page, re.DOTALL) for mark in re.findall("<(?:circle|path)", part)
    ]


def test_the_page_needs_no_network() -> None:
    html = render_report([grouping([0, 0, 1, 1]), grouping([0, 1, 1, 1])])
    addresses = [value for _, attributes in Page(html).tags for name, value in attributes.items() if name in ("src", "href")]
    assert {str(address)[0] for address in addresses} == {"#", "d"}
    assert [address for address in addresses if not str(address).startswith("#")] == ["data:,"]
    assert not re.search(r"url\(|@import|https?://", html)
    assert "default-src 'none'" in html


def test_the_security_policy_allows_the_page_script_and_no_other() -> None:
    html = render_report([grouping([0, 1])])
    digest = base64.b64encode(hashlib.sha256(re.findall(r"<script>(.*?)</script>", html, re.DOTALL)[0].encode()).digest())
    assert re.findall(r"script-src ([^;]*);", html) == [f"'sha256-{digest.decode()}'"]


def test_markup_in_any_string_stays_text() -> None:
    labels = [0, 0, 1]
    clean = Page(render_report([grouping(labels), grouping(labels)]))
    nasty = grouping(
        labels,
        instruction=NASTY,
        texts=[NASTY] * 3,
        answers=[NASTY] * 3,
        keywords=[[NASTY]] * 2,
        examples=[[NASTY]] * 2,
        label_agreements={NASTY: measure_agreement(np.array(labels), [NASTY] * 3)},
    )
    html = render_report([nasty, nasty], title=NASTY)
    page = Page(html)
    assert len(page.attributes_of("script")) == len(clean.attributes_of("script")) == 2
    assert not page.attributes_of("img")
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert page.data["texts"] == [NASTY] * 3
    assert "49" not in html.split("</header>")[0]


def test_every_text_is_one_dot_with_its_text_answer_and_cluster() -> None:
    labels = [0, 0, 0, 1, 1, 2]
    html = render_report([grouping(labels)])
    data = Page(html).data
    (view,), (kind,) = data["views"], data["dimensions"]
    assert len(find_dots(html)) == 6
    assert sorted(view["markOf"]) == list(range(6))
    assert [view["marks"][mark][2] for mark in view["markOf"]] == kind["categoryOf"] == labels
    rows = list(
        zip(data["numbers"], data["texts"], view["answers"], map(kind["names"].__getitem__, kind["categoryOf"]), strict=True)
    )
    assert rows == [(i + 1, f"text {i}", f"answer {label}", f"word{label}, more{label}") for i, label in enumerate(labels)]


def test_clusters_beyond_the_palette_change_shape_and_repeat_colours() -> None:
    html = render_report([grouping(list(range(30)), embeddings=np.random.default_rng(0).normal(size=(30, 4)))])
    legend = html.split('<ol class="legend"')[1].split("</ol>")[0]
    marks = re.findall(r'<svg class="mark".*?<(circle|path) class="(c\d+)"(.*?)/>', legend)
    assert len(find_dots(html)) == len(marks) == 30
    assert [colour for _, colour, _ in marks] == [f"c{i % 12}" for i in range(30)]
    outlines = [re.sub("[^a-z]", "", path_data.split(' d="')[1]) if kind == "path" else "circle" for kind, _, path_data in marks]
    kinds = list(dict.fromkeys(outlines))
    assert len(kinds) == 4
    assert [kinds.index(outline) for outline in outlines] == [i // 6 % 4 for i in range(30)]


@pytest.mark.parametrize("vectors", [np.ones((30, 4)), np.zeros((30, 4)), np.arange(1, 31)[:, None] * np.ones((30, 4))])
def test_texts_with_one_direction_share_one_point(vectors: np.ndarray) -> None:
    html = render_report([grouping([0] * 30, embeddings=vectors.astype(np.float32))])
    assert {(x, y) for x, y, *_ in Page(html).data["views"][0]["marks"]} == {(320.0, 240.0)}
    assert "All texts have the same vector" in html


def test_one_text_makes_a_page() -> None:
    html = render_report([grouping([0])])
    assert len(find_dots(html)) == 1
    assert "1 text<" in html


def test_a_large_corpus_is_drawn_by_density_and_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "MAX_DOTS", 40)
    labels = [0] * 30 + [1] * 20
    html = render_report([grouping(labels)])
    (view,) = Page(html).data["views"]
    assert "Density of all 50 texts" in html
    for label, size in ((0, 30), (1, 20)):
        assert sum(texts for _, _, group, texts in view["marks"] if group == label) == size
    assert [view["marks"][mark][2] for mark in view["markOf"]] == labels
    assert all(view["markOf"].count(mark) == texts for mark, (_, _, _, texts) in enumerate(view["marks"]))
    assert html == render_report([grouping(labels)])


def test_texts_that_fit_no_group_are_grey_and_have_no_number_on_the_map() -> None:
    html = render_report([grouping([0, 2, 1, 1, 2], left_out=2)])
    data = Page(html).data
    assert data["dimensions"][0]["names"][2] == "none of these" and data["dimensions"][0]["categoryOf"] == [0, 2, 1, 1, 2]
    assert data["dimensions"][0]["colours"] == [0, 1, "none"]
    assert "2 texts · 40%" in html.split("none of these</h3>")[1]
    assert re.findall('<span class="number">([^<]*)</span>', html) == ["1", "2"]
    assert html.count('<text class="name">') == 2


def test_the_cross_table_counts_texts_exactly() -> None:
    html = render_report([grouping([0, 0, 0, 1, 1, 1]), grouping([0, 0, 1, 1, 2, 2], instruction="And where?")])
    header, *lines = Page(html.split('<section class="panel needs-script"')[0]).cells
    assert [cell.split("\xa0")[1].strip() for cell in header[1:-1]] == ["word0, more0", "word1, more1", "word2, more2"]
    assert [[int(cell) for cell in line[1:]] for line in lines] == [[2, 1, 0, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ([0, 1] * 40, [1, 0] * 40, "The same</b> (Cramér's V <span>1.00</span>;"),
        ([0, 0, 0, 1, 1, 1] * 20, [0, 0, 1, 1, 1, 0] * 20, "Clearly related</b> (Cramér's V <span>0.33</span>;"),
        ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0], "Unrelated, as far as these texts show</b> (Cramér's V <span>0.33</span>;"),
        ([0, 0, 1, 1], [0, 1, 0, 1], "Unrelated, as far as these texts show</b> (Cramér's V <span>0.00</span>;"),
    ],
)
def test_one_measure_tells_in_words_how_two_questions_relate(first: list[int], second: list[int], verdict: str) -> None:
    html = render_report([grouping(first), grouping(second)])
    assert f'<p class="verdict"><b>{verdict}' in html and "Rand" not in html


def test_three_questions_make_three_cross_tables_and_one_question_none() -> None:
    one = grouping([0, 0, 1])
    tables = [table for table in Page(render_report([one, one, one])).attributes_of("table") if table["class"] == "heatmap"]
    assert len(tables) == 3
    assert len(Page(render_report([one])).attributes_of("table")) == 1  # that of the texts


def test_the_page_knows_whether_an_empty_answer_is_none() -> None:
    def is_answered(**changes: Any) -> bool:
        (view,) = Page(render_report([grouping([0] * 5 + [1] * 5, **changes)])).data["views"]
        return bool(view["answered"])

    answers = ["Paris"] * 9 + [""]
    assert is_answered(answers=answers)
    assert not is_answered(answers=[""] * 10)
    mapped: Any = np.eye(10, 8, dtype=np.float32).view(GuidedVectors)
    mapped.sample = np.arange(9)
    assert not is_answered(answers=answers, embeddings=mapped)


def test_answers_are_counted_whatever_their_case() -> None:
    html = render_report([grouping([0] * 5, answers=["Paris", "paris", " PARIS ", "Rome", ""])])
    counted = re.findall(r"<bdi>([^<]*)</bdi> <b>(\d+)</b>", html)
    assert counted == [("Paris", "3"), ("Rome", "1"), ("(no answer)", "1")]


def test_given_labels_show_shares_entropy_and_v_measure() -> None:
    labels = np.array([0] * 16 + [1] * 4)
    labels_given = ["a"] * 8 + list("bcdefghi") + ["j"] * 4
    html = render_report([grouping(labels.tolist(), label_agreements={"kind": measure_agreement(labels, labels_given)})])
    first, second = html.split('Your column <bdi>kind</bdi> in this group<span class="entropy"> · entropy ')[1:]
    assert (first[:4], second[:4]) == ("2.50", "0.00")
    assert re.findall(r"<bdi>([^<]*)</bdi> <b>(\d+%)</b>", first) == [
        ("a", "50%"), ("b", "6%"), ("c", "6%"), ("d", "6%"), ("e", "6%"), ("4 others", "25%")
    ]  # fmt: skip
    assert f"V-measure {measure_agreement(labels, labels_given).v_measure:.2f} against your column <bdi>kind</bdi>" in html


def test_each_column_of_labels_and_each_note_is_shown() -> None:
    labels = np.array([0, 0, 1])
    agreements = {
        name: measure_agreement(labels, labels_given)
        for name, labels_given in {"kind": list("aab"), "mood": ["x", None, "y"]}.items()
    }
    html = render_report([grouping(labels.tolist(), label_agreements=agreements, notes=["Groups 1 and 2 are <alike>."])])
    assert html.count("Your column <bdi>kind</bdi>") == html.count("Your column <bdi>mood</bdi>") == 2
    assert html.count("<bdi>(no label)</bdi>") == 1
    assert html.count("V-measure 1.00 against your column") == 2
    assert "Groups 1 and 2 are &lt;alike&gt;." in html


def test_keywords_are_shown_where_there_are_no_answers() -> None:
    assert 'aria-label="Keywords"' not in render_report([grouping([0, 1])])
    page = render_report([grouping([0, 1], answers=["", ""])])
    assert re.findall('<li dir="auto">(more.)</li>', page) == ["more0", "more1"]


def test_notes_loose_groups_and_the_outline_are_shown() -> None:
    result = grouping([0] * 4 + [1] * 3 + [2] * 2 + [3])
    fields = {"notes": ["Two groups were merged."], "branches": [0, 1, 0], "left_out": 3, "stability": [0.9, 0.7, 0.2, 0.0]}
    fields["mixed"] = [True, False, True, True]
    for name, value in {**fields, "choice": Choice(4, 2, 8, 0.1, 50), "wordings": ["a?", "b?"]}.items():
        object.__setattr__(result, name, value)
    html = render_report([result])
    assert re.findall('<p class="note" dir="auto">([^<]*)</p>', html) == [
        "Two groups were merged.", LOOSE_NOTE,
        str(result.choice),
        "Grouped by the mean over 2 wordings: a? · b?",
    ]  # fmt: skip
    assert not re.search(r"silhouette|adjusted Rand| --\w+|-k\b|compare-wordings", html.split("</style>")[1].split("<script")[0])
    reasons = [
        "Loose: its answers differ.",
        "Loose: its answers differ, and other groups form when the texts are resampled (stability 0.20, below 0.6).",
    ]
    assert re.findall('<span class="loose" tabindex="0" title="([^"]*)">', html) == reasons * 2  # in the legend and on the cards
    assert '<span class="group-count" data-unit="group">4 groups in 2 branches</span>' in html
    assert re.findall('<li class="branch" style="order:(.)"><bdi>(.*?)</bdi><small>(.*?)</small>', html) == [
        ("0", "answer", "60%"), ("2", "answer", "30%")
    ]  # fmt: skip
    assert re.findall('<li style="order:(.)">', html) == ["1", "3", "1", "7"]
    assert Page(html).data["dimensions"][0]["colours"] == [0, 1, 2, "none"]


def test_a_named_instruction_is_shown_as_its_question() -> None:
    html = render_report([grouping([0], instruction="@emotion"), grouping([0], instruction="@nobody")])
    assert re.findall("<h2[^>]*>([^<]*)</h2>", html)[:2] == ["How does the writer feel?", "@nobody"]


def test_lone_surrogates_are_replaced_and_pairs_are_joined(tmp_path: Path) -> None:
    texts = ["half \ud83d of one", "a pair \ud83d\ude00 of halves"]
    bad = grouping([0, 0], texts=texts, answers=["\udc00"] * 2, keywords=[["\ud800"]], examples=[texts], instruction="\ud801?")
    save_report([bad, bad], tmp_path / "page.html", title="\udfff")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert set(Page(page).data["texts"]) == {"half \ufffd of one", "a pair \U0001f600 of halves"}


def test_an_existing_page_survives_an_interrupted_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "page.html"
    target.write_text("the old page")

    def interrupt(path: Path, text: str, **_: Any) -> None:
        path.write_bytes(text[:100].encode())
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_report([grouping([0, 1])], target)
    assert target.read_text() == "the old page"
    assert list(tmp_path.iterdir()) == [target]


def test_a_page_is_written_through_a_link_and_keeps_its_mode(tmp_path: Path) -> None:
    target, link = tmp_path / "page.html", tmp_path / "link.html"
    target.write_text("the old page")
    target.chmod(0o640)
    link.symlink_to(target.name)
    save_report([grouping([0, 1])], link)
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert target.stat().st_mode & 0o777 == 0o640


def test_an_existing_page_survives_results_that_cannot_be_shown(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("the old page")
    for results in ([], [grouping([0], texts=[])], [grouping([0, 1]), grouping([0, 1], texts=["other", "texts"])]):
        with pytest.raises(InputError):
            save_report(results, target)
    assert target.read_text() == "the old page"
    assert list(tmp_path.iterdir()) == [target]


def test_headings_never_skip_a_level_and_maps_have_a_name() -> None:
    html = render_report([grouping([0, 1]), grouping([0, 0])])
    levels = [int(tag[1]) for tag, _ in Page(html).tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    maps = [attributes for attributes in Page(html).attributes_of("svg") if attributes.get("role") == "img"]
    assert [bool(attributes["aria-label"]) for attributes in maps] == [True, True]
    assert Page(html).attributes_of("html") == [{"lang": "en"}]


@pytest.mark.parametrize(("palette", "paper"), [(views.LIGHT, "#ffffff"), (views.DARK, "#1b1e24")])
def test_colours_stand_out_and_stay_apart_for_the_colour_blind(palette: list[str], paper: str) -> None:
    hexes = [[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in [paper, *palette]]
    linear = np.where(np.array(hexes) <= 0.04045, np.array(hexes) / 12.92, ((np.array(hexes) + 0.055) / 1.055) ** 2.4)
    light = linear @ [0.2126, 0.7152, 0.0722] + 0.05
    assert (np.maximum(light[1:], light[0]) / np.minimum(light[1:], light[0])).min() >= 2.95
    to_cone = np.array([[0.4122, 0.5363, 0.0515], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.63]])
    to_lab = np.array([[0.2105, 0.7936, -0.0041], [1.978, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
    machado = {  # severity 1
        "none": np.eye(3),
        "protanopia": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.052]]),
        "deuteranopia": np.array([[0.3673, 0.8606, -0.228], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
        "tritanopia": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
    }
    for simulation in machado.values():
        lab = np.cbrt(np.clip(linear[1:] @ simulation.T, 0, 1) @ to_cone.T) @ to_lab.T
        distance = np.linalg.norm(lab[:, None] - lab, axis=2) + np.eye(12)
        assert distance.min() > 0.05  # about 0.02 is a just noticeable difference


def test_a_page_without_answers_mentions_only_texts():
    page = render_report([grouping([0, 0, 1, 1], answers=[""] * 4)])
    assert "Most frequent answers" not in page and "(no answer)" not in page.split("<script>")[0]
    assert "clusters of the texts' vectors" in page.replace("&#39;", "'") and "named by phrases of its texts" in page
    assert "named by phrases of its answers and texts" in render_report([grouping([0, 0, 1, 1])])


def test_pieces_of_an_example_are_its_text_up_to_the_limit() -> None:
    text = "late " * 100
    pieces = views.cut_pieces(text, [(0, 4), (5, 9), (300, 304)])
    assert pieces[:4] == [("late", True), (" ", False), ("late", True), pieces[3]]
    assert "".join(piece for piece, _ in pieces) == text[: views.MAX_EXAMPLE_CHARACTERS].rstrip() + "…"
    assert views.cut_pieces("short", [(0, 5)]) == [("short", True), ("", False)]
    assert views.cut_pieces("a\n b", []) == [("a b", False)]
