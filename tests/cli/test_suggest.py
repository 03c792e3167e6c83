from tests.cli.test_cli import run


def test_questions_are_ranked_and_mapped(tmp_path, monkeypatch, make_model, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.txt").write_text("\n".join(f"text number {i}" for i in range(30)))
    (tmp_path / "questions.txt").write_text("Who?\n")
    options = ("-i", "What?", "--questions", "questions.txt", "-o", "page.html", "--model", make_model("bert"))
    assert run(monkeypatch, "suggest", "reviews.txt", *options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("question") and {line.split("  ")[-1] for line in lines[1:]} == {"What?", "Who?"}
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "What?" in page and "Who?" in page and "<title>reviews.txt</title>" in page


def test_a_page_is_the_only_output(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.txt").write_text("a\nb\n")
    assert run(monkeypatch, "suggest", "reviews.txt", "-o", "page.csv") == 2
    assert ".html" in capsys.readouterr().err
