import io
import zipfile

import pytest

from inbedder.io import sheet_marks


def read(xml):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("sheet.xml", xml)
    return sheet_marks.read_marks(file, "sheet.xml")


@pytest.mark.parametrize(
    ("cell", "has_value"),
    [
        ('<c r="B7"><f>A1</f><v></v></c>', False),
        ('<c r="B7" s="1"><f>A1</f><v/></c>', False),
        ('<c r="B7"><f t="shared" si="0"/></c>', False),
        ('<x:c r="B7"><x:f>A1</x:f><x:v></x:v></x:c>', False),
        ('<c r="B7"><f>A1</f><v>3</v></c>', True),
        ('<c r="B7" t="str"><f>A1</f><v></v></c>', True),
        ('<c r="B7" s="1"/>', True),
    ],
)
def test_formulas_without_a_value_are_found(cell, has_value):
    marks = read(f'<row r="7">{cell}<c r="C7"><v>1</v></c></row>')
    assert (marks.uncomputed_rows, marks.first_uncomputed) == ((set(), "") if has_value else ({7}, "B7"))


def test_marks_are_found_once_wherever_chunks_end(monkeypatch):
    xml = (
        "".join(f'<c r="A{row}"><f>B{row}</f><v/></c>' for row in range(1, 40))
        + '<mergeCell ref="B2:C9"/><mergeCell ref="D1:F1"/>'
    )
    monkeypatch.setattr(sheet_marks, "OVERLAP_BYTES", 64)
    for chunk_bytes in (1, 7, 100, 10_000):
        monkeypatch.setattr(sheet_marks, "CHUNK_BYTES", chunk_bytes)
        marks = read(xml)
        assert marks.uncomputed_rows == set(range(1, 40))
        assert (dict(marks.merged)[2], marks.first_merged) == ([("B", 9)], "B2:B9")
