"""The MCP server answers its official client over standard input and output, and reads nothing outside its folder."""

import asyncio
import os
import re
import sys

import pytest

from inbedder import cluster

mcp = pytest.importorskip("mcp")
TEXTS = [f"The {thing} {event}" for thing in ("parcel", "letter", "box") for event in ("is late", "is lost", "came broken")]


@pytest.fixture(scope="module")
def tiny_masked(make_model):
    return make_model("bert")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_masked):
    """A folder with a table, saved groups, and links that lead out of it."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.csv").write_text("text\nsecret\n", "utf-8")
    folder = tmp_path_factory.mktemp("data")
    (folder / "letters.csv").write_text("id,text\n" + "".join(f"{i},{text}\n" for i, text in enumerate(TEXTS)), "utf-8")
    (folder / "chats.jsonl").write_text('{"id": 7, "messages": [{"role": "user", "content": "It is lost"}]}\n' * 3, "utf-8")
    (folder / "binary.parquet").write_bytes(b"PAR1 no")
    (folder / "link.csv").symlink_to(outside / "secret.csv")
    (folder / "out").symlink_to(outside, target_is_directory=True)
    cluster(TEXTS, "What is it about?", model=str(tiny_masked), k=2).save(folder / "groups")
    return folder


@pytest.fixture(scope="module")
def answers(folder, tiny_masked):
    """The results of calls over one connection, in their order, and the tools."""
    question = {"question": "What is it about?"}
    calls = [
        ("list_files", {}),
        ("list_groups", {"saved_groups": "groups"}),
        ("group_members", {"saved_groups": "groups", "group": 1, "table": "letters.csv", "columns": ["id"], "limit": 2}),
        ("compare_groups", {"saved_groups": "groups", "first": 1, "second": 2}),
        ("ask_table", {"table": "letters.csv", **question, "groups": 3, "columns": ["id"], "examples": 1}),
        ("ask_table", {"table": "chats.jsonl", **question, "groups": 1, "columns": ["id"], "traces": "conversation"}),
        ("classify_table", {"table": "letters.csv", **question, "categories": ["late", "broken"]}),
        ("ask_table", {"table": "../outside/secret.csv", **question}),
        ("ask_table", {"table": "/etc/passwd", **question}),
        ("ask_table", {"table": "link.csv", **question}),
        ("list_groups", {"saved_groups": "out"}),
        ("ask_table", {"table": "a\0b.csv", **question}),
        ("ask_table", {"table": "none.csv", **question}),
        ("ask_table", {"table": "groups", **question}),
        ("ask_table", {"table": "binary.parquet", **question}),
        ("ask_table", {"table": "letters.csv", **question, "groups": 50}),
        ("ask_table", {"table": "letters.csv", **question, "columns": ["city"]}),
        ("list_groups", {"saved_groups": "."}),
        ("compare_groups", {"saved_groups": "groups", "first": 1, "second": 9}),
        ("classify_table", {"table": "letters.csv", **question, "categories": ["late"]}),
    ]

    async def run():
        arguments = ["-m", "inbedder", "mcp", str(folder), "--model", str(tiny_masked)]
        parameters = mcp.StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
        async with mcp.stdio_client(parameters) as (read, write), mcp.ClientSession(read, write) as session:
            await session.initialize()
            tools = (await session.list_tools()).tools
            return tools, [await session.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(run())


def test_an_agent_lists_groups_and_asks_new_questions(answers):
    tools, results = answers
    assert all(tool.annotations.read_only_hint for tool in tools) and len(tools) == 6
    files, groups, members, comparison, questioned, chats, classified = (result.structured_content for result in results[:7])
    assert files == {"tables": ["binary.parquet", "chats.jsonl", "letters.csv"], "saved_groups": ["groups"]}
    assert groups["texts"] == 9 and sum(group["texts"] for group in groups["groups"]) == 9
    assert members["of"] == 9 and len(members["members"]) == 2
    assert all(TEXTS[int(row["id"])] == row["text"] and row["row"] == int(row["id"]) + 1 for row in members["members"])
    assert {comparison["first"]["name"], comparison["second"]["name"]} == {group["name"] for group in groups["groups"]}
    assert [sum(group["texts"] for group in questioned["groups"]), len(questioned["groups"])] == [9, 3]
    assert all(len(group["examples"]) == 1 and "id" in group["examples"][0] for group in questioned["groups"])
    assert chats["groups"][0]["examples"][0]["text"] == "User: It is lost" and chats["groups"][0]["examples"][0]["id"] == 7
    assert [category["category"] for category in classified["categories"]] == ["late", "broken"]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        *enumerate(
            [
                *["is outside the folder"] * 5,
                "does not exist. list_files",
                "is no file",
                "parquet",
                "k must be",
                "No column 'city'",
                "no grouping|grouping.json|saved",
                "There is no group 9",
                "Give from 2",
            ],
            start=7,
        )
    ],
)
def test_what_cannot_be_done_is_an_error_with_clear_text(answers, number, message):
    result = answers[1][number]
    assert result.is_error
    (content,) = result.content
    assert re.search(message, content.text) and "Traceback" not in content.text and "Unexpected" not in content.text


def test_the_server_writes_nothing(answers, folder):
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["binary.parquet", "chats.jsonl", "groups", "letters.csv", "link.csv", "out"]
