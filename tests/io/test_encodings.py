import codecs
import gzip
import io

import pytest

from inbedder.errors import InputError
from inbedder.io.encodings import guess_encodings
from inbedder.io.tables import open_texts, read_rows, read_table

ENGLISH = "The parcel didn’t arrive – and they still want € 5 for “express”.\n"
FRENCH = "Le dîner était très bon, à déguster près de la forêt.\n"
GERMAN = "Ein schöner Tag, natürlich grüßt er alle Gäste.\n"
JAPANESE = "この商品はとても良いです。カメラの電池がすぐに切れます。\n"
CHINESE = "这个产品非常好，但是电池很快就没电了。客服没有回复我的邮件。\n"
TAIWANESE = "這個產品非常好，但是電池很快就沒電了。客服沒有回覆我的郵件。\n"
KOREAN = "이 제품은 아주 좋습니다. 하지만 배터리가 빨리 닳습니다.\n"
RUSSIAN = "Посылка пришла поздно, коробка помята, а деньги не вернули.\n"


@pytest.mark.parametrize("text", [ENGLISH, FRENCH, GERMAN, ENGLISH + "id,text\n" * 50])
def test_windows_1252_is_advised_for_latin_scripts(tmp_path, text):
    content = text.encode("cp1252")
    (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(InputError, match=r"is not UTF-8 text\. Convert it first: iconv -f cp1252 -t utf-8") as raised:
        read_table(str(tmp_path / "t.txt"))
    assert "latin1" not in str(raised.value)
    assert content.decode(guess_encodings(content)[0]) == text


@pytest.mark.parametrize(
    ("text", "encoding", "first"),
    [
        (JAPANESE, "shift_jis", "cp932"),
        (JAPANESE, "euc-jp", "euc-jp"),
        (CHINESE, "gbk", "gb18030"),
        (KOREAN, "euc-kr", "euc-kr"),
        (RUSSIAN, "cp1251", "cp1251"),
    ],
)
def test_other_scripts_are_not_called_latin(tmp_path, text, encoding, first):
    content = ("id;text\n" + "".join(f"{i};{text}" for i in range(200))).encode(encoding)
    assert content.decode(guess_encodings(content)[0]) == content.decode(encoding)
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=f"Convert it first: iconv -f {first} -t utf-8"):
        read_table(str(tmp_path / "t.csv"))


def test_big5_is_among_the_guesses():
    guesses = guess_encodings((TAIWANESE * 20).encode("big5"))
    assert "big5" in guesses
    assert not {"cp1252", "cp1250"} & set(guesses[:2])


def test_damaged_utf_8_is_not_called_another_encoding(tmp_path):
    content = (FRENCH * 40).encode()
    (tmp_path / "t.txt").write_bytes(content[:1000] + b"\xff" + content[1000:])
    with pytest.raises(InputError, match=r"is UTF-8 text with damaged bytes\. Remove them: iconv -c"):
        read_table(str(tmp_path / "t.txt"))


def test_a_compressed_file_is_unpacked_before_it_is_converted(tmp_path):
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(FRENCH.encode("cp1252")))
    with pytest.raises(InputError, match="Unpack it, and convert it first: iconv -f cp1252"):
        read_table(str(tmp_path / "t.txt.gz"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("I love cats\n".encode("utf-16-le"), "as UTF-16 does. Convert it first: iconv -f utf-16le"),
        ("I love cats\n".encode("utf-16-be"), "as UTF-16 does. Convert it first: iconv -f utf-16be"),
        (b"I love cats\n" + bytes(500), "is not text: it contains many zero bytes. Remove them: tr -d"),
        (bytes(4096), "is not text: it contains many zero bytes"),
    ],
)
def test_zero_bytes_are_utf_16_only_at_every_second_place(tmp_path, content, message):
    (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(InputError) as raised:
        read_table(str(tmp_path / "t.txt"))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("t.csv", [{"text": "a b"}, {"text": "text"}, {"text": "c d"}]),
        ("t.jsonl", [{"text": "a b"}, {"text": "c d"}]),
        ("t.json", [{"text": "a b"}]),
        ("t.txt", [{"text": "a b"}, {"text": "c d"}]),
    ],
)
def test_marks_inside_concatenated_files_are_left_out(tmp_path, name, rows):
    parts = {
        "t.csv": ["text\na b\n", "text\nc d\n"],
        "t.jsonl": ['{"text": "a b"}\n', '{"text": "c d"}\n'],
        "t.json": ["", '[{"text": "a b"}]'],
        "t.txt": ["a b\n", "c d\n"],
    }[name]
    path = tmp_path / name
    path.write_bytes(b"".join(codecs.BOM_UTF8 + part.encode() for part in parts))
    assert read_rows(str(path)) == rows
    with open_texts(str(path), "text") as texts:
        assert [text for _, text in texts] == [row["text"] for row in rows]


def test_messages_about_standard_input_name_it(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(FRENCH.encode("cp1252")))
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(InputError, match=r"^'-' is not UTF-8 text\. .* iconv -f cp1252 -t utf-8 '-'"), open_texts("-"):
        pass
