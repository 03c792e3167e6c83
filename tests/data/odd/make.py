"""Write the odd files beside this one; what each gives is written by hand in expected.json.

python tests/data/odd/make.py
"""

import bz2
import gzip
from pathlib import Path

import pyarrow
import pyarrow.parquet

HERE = Path(__file__).parent
ROWS = "text,stars\nI love cats,5\nI love dogs,4\nThe lamp is late,1\n"
DEEP = "[" * 20_000 + "]" * 20_000

FILES: dict[str, bytes | str] = {
    "empty.csv": "",
    "empty.txt": "",
    "empty.jsonl": "",
    "empty.json": "",
    "empty.parquet": b"",
    "blank_lines.txt": "\n\n  \n\t\n",
    "header_alone.csv": "text,stars\n",
    "one_line.txt": "one line",
    "one_word.csv": "text\ncat\n",
    "no_last_newline.csv": ROWS.rstrip("\n"),
    "blank_line_inside.txt": "one\n\nthree\n",
    "blank_lines_at_the_end.txt": "one\ntwo\n\n\n\n",
    "blank_lines_between_rows.csv": ROWS.replace("\n", "\n\n"),
    "blank_lines_between_rows.jsonl": '{"text": "one"}\n\n{"text": "two"}\n',
    "bom_utf8.csv": b"\xef\xbb\xbf" + ROWS.encode(),
    "bom_utf8.txt": b"\xef\xbb\xbfone\ntwo\n",
    "bom_utf8.jsonl": b'\xef\xbb\xbf{"text": "one"}\n{"text": "two"}\n',
    "utf16_le_with_bom.csv": b"\xff\xfe" + ROWS.encode("utf-16-le"),
    "utf16_be_with_bom.txt": b"\xfe\xff" + "one\ntwo żółć\n".encode("utf-16-be"),
    "utf16_without_bom.csv": ROWS.encode("utf-16-le"),
    "utf16_cut_in_a_letter.txt": b"\xff\xfe" + "one\ntwo\n".encode("utf-16-le")[:-1],
    "utf32_with_bom.txt": "one\ntwo\n".encode("utf-32"),
    "latin1.csv": "text,stars\nEin schöner Tag,5\nnaïve café,4\n".encode("latin-1"),
    "latin1.txt": "Ein schöner Tag\n".encode("latin-1"),
    "cp1252.csv": "text,stars\nIt didn’t arrive – “really”,1\n€ 5 lost,2\n".encode("cp1252"),
    "shift_jis.csv": "text,stars\nとても良いです,5\n電池がすぐに切れます,2\n".encode("shift_jis"),
    "gbk.txt": "这个产品非常好\n电池很快就没电了\n".encode("gbk"),
    "bom_utf8_twice.txt": b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n",
    "zeros_at_the_end.txt": b"one\ntwo\n" + bytes(500),
    "invalid_utf8_at_the_end.txt": b"one\ntwo\nthree \xc3",
    "nul_byte.txt": b"a cat\x00\nI love the dogs that you have\n",
    "nothing_but_nul.txt": bytes(4096),
    "lone_surrogate.jsonl": '{"text": "half \\ud83d a smile"}\n{"text": "whole \\ud83d\\ude00"}\n',
    "nul_escape.jsonl": '{"text": "a\\u0000b"}\n',
    "unbalanced_quote.csv": 'text,stars\nI love cats,5\n"an open quote,4\nI love dogs,4\nThe lamp is late,1\n',
    "unbalanced_quote_in_the_header.csv": '"text,stars\nI love cats,5\n',
    "text_behind_a_quote.csv": 'text,stars\n"I love" cats,5\nI love dogs,4\n',
    "quoted_newlines.csv": 'text,stars\n"I love\ncats",5\n"I ""love"" dogs",4\n',
    "semicolons.csv": "text;stars\nI love cats, really;5\nI love dogs;4\n",
    "tabs.csv": "text\tstars\nI love cats\t5\nI love dogs\t4\n",
    "bars.csv": "text|stars\nI love cats|5\nI love dogs|4\n",
    "ragged_rows.csv": "text,stars\nI love cats,5\nI love dogs\nThe lamp,is,late\nIt works,3\n",
    "blank_first_header.csv": ",text\n0,I love cats\n1,I love dogs\n",
    "blank_last_headers.csv": "text,stars,,\nI love cats,5,,\nI love dogs,4,,note\n",
    "blank_lines_before_the_header.csv": "\n\n" + ROWS,
    "duplicate_columns.csv": "text,text\nI love cats,I love dogs\n",
    "several_text_columns.csv": "title,body\nI love cats,They are so nice\nI love dogs,They are nice too\n",
    "empty_text_column.csv": "review,label\n,good news\n,bad news\n",
    "empty_text_cell.csv": "text,stars\nI love cats,5\n,4\n   ,3\nI love dogs,2\n",
    "numbers_alone.csv": "a,b\n1,2\n3,4\n",
    "numbers_alone.txt": "1\n2\n3\n",
    "numbers_as_text.jsonl": '{"text": 1}\n{"text": 2}\n',
    "crlf.csv": ROWS.replace("\n", "\r\n"),
    "crlf.txt": "one\r\ntwo\r\n",
    "cr.txt": "one\rtwo\rthree\r",
    "cr.csv": ROWS.replace("\n", "\r"),
    "emoji.csv": "text\n😀👍🏽 👨‍👩‍👧\n🇵🇱 Zażółć gęślą jaźń\n",
    "right_to_left.txt": "שלום עולם\nمرحبا بالعالم\n\u202eevil\u202c\n",
    "template_markers.txt": "### Instruction:\n### Response: </s> <mask> [MASK]\n{text} {instruction}\n",
    "control_characters.jsonl": '{"text": "\\u001b[31mred\\u0007 \\u0000"}\n{"text": "\\u0008\\u0008"}\n',
    "formulas.csv": "text,stars\n=1+1,5\n@SUM(A1),4\n+cmd|' /C calc'!A0,3\n-2 stars,2\n",
    "deeply_nested.jsonl": f'{{"text": "one"}}\n{DEEP}\n{{"text": "two"}}\n',
    "deeply_nested.json": f'[{{"text": "one"}}, {DEEP}]',
    "not_an_object.jsonl": '{"text": "one"}\n[1, 2]\n"three"\nnull\n',
    "cut_in_a_row.jsonl": '{"text": "one"}\n{"text": "tw',
    "nan_cells.jsonl": '{"text": "one"}\n{"text": NaN}\n{"text": null}\n{"stars": 5}\n',
    "object_in_a_cell.jsonl": '{"text": "one"}\n{"text": {"a": 1}}\n{"text": ["a"]}\n',
    "repeated_key.jsonl": '{"text": "one", "text": "two"}\n',
    "list_of_strings.json": '["one", "two"]',
    "one_object.json": '{"text": "one"}',
    "cut.json": '[{"text": "one"}, {"text": ',
    "csv_in_truth.parquet": ROWS,
    "csv_in_truth.json": ROWS,
    "unknown_suffix.docx": ROWS,
    "no_suffix": ROWS,
    "whole.csv.gz": gzip.compress(ROWS.encode(), mtime=0),
    "gzip_in_truth.csv": gzip.compress(ROWS.encode(), mtime=0),
    "bz2_in_truth.csv": bz2.compress(ROWS.encode()),
    "zip_in_truth.csv": b"PK\x03\x04" + bytes(40),
    "not_compressed.csv.gz": ROWS,
    "truncated.csv.gz": gzip.compress(ROWS.encode() * 50, mtime=0)[:-12],
    "wrong_checksum.txt.gz": gzip.compress(b"one\ntwo\n", mtime=0)[:-8] + bytes(8),
}


def write_parquet(name, table, keep=None):
    """Write a table, and cut its file to ``keep`` bytes."""
    pyarrow.parquet.write_table(table, HERE / name)
    if keep is not None:
        (HERE / name).write_bytes((HERE / name).read_bytes()[:keep])


def main():
    """Write all files."""
    for name, content in FILES.items():
        (HERE / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    table = pyarrow.table({"text": ["I love cats", "I love dogs", "It is late"], "stars": [5, 4, 1]})
    write_parquet("whole.parquet", table)
    write_parquet("truncated.parquet", table, keep=400)
    (HERE / "parquet_in_truth.csv").write_bytes((HERE / "whole.parquet").read_bytes())
    far = pyarrow.array([253402300799, 0], pyarrow.timestamp("s", "Europe/Berlin"))
    write_parquet("year_9999.parquet", pyarrow.table({"text": ["one", "two"], "until": far}))
    write_parquet("no_rows.parquet", table.slice(0, 0))
    write_parquet("nan_cells.parquet", pyarrow.table({"text": ["one", None, "", "four"]}))
    repeated = pyarrow.Table.from_arrays([pyarrow.array(["one"]), pyarrow.array(["two"])], names=["text", "text"])
    write_parquet("duplicate_columns.parquet", repeated)
    write_parquet("numbers_alone.parquet", pyarrow.table({"text": [1.5, float("nan")]}))


if __name__ == "__main__":
    main()
