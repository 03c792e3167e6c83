"""No loader runs code of a pickle, or opens files outside a model's folder."""

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, modeling_utils

from inbedder import InBedder
from inbedder.backbones import vllm
from inbedder.backbones.file_checks import INDEX, PICKLED_INDEX, check_weights, list_shards
from inbedder.backbones.hub import ModelFiles
from inbedder.conditional.config import Encoding
from inbedder.conditional.encoder import ConditionalEncoder
from inbedder.errors import ModelError, RecipeError
from inbedder.options import Reencoding
from inbedder_evaluation.mteb_adapters import load_mteb_model
from inbedder_finetune.contrastive.contrastive_recipe import parse_recipe
from inbedder_finetune.contrastive.train_contrastive import load_encoder
from inbedder_finetune.recipe import Lora
from inbedder_finetune.training_run import add_adapters, make_lora_config
from tests.backbones.checkpoints import Marking, nothing_unpickled, pickle_weights, plant

ROOT = Path(__file__).parents[2]
PICKLING = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
PACKAGES = [path for package in ("inbedder", "finetune", "evaluation") for path in sorted((ROOT / package).rglob("*.py"))]


def unpicklers(source):
    """Yield the names in a source file that read or write pickles, or allow a library to do so."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            names = ["allow_pickle"]
        for name in names:
            last = name.rsplit(".", 1)[-1]
            if name.split(".")[0] in PICKLING or last in ("read_pickle", "to_pickle", "load_peft_weights", "allow_pickle"):
                yield name
            if name in ("torch.load", "torch.save", "PeftModel.from_pretrained"):
                yield name


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_of_the_packages_but_one_reads_pickles(path):
    source = path.read_text(encoding="utf-8")
    names = list(unpicklers(source))
    if path.name == "pickled_weights.py":
        assert names == ["torch.load"]
        assert re.findall(r" torch\.load\((.*)\)", source) == ['path, map_location="cpu", weights_only=True, mmap=is_zip']
    else:
        assert not names


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from joblib import load", "import torch as t\nx = torch.load(f)", "from torch import load",
     "np.load(f, allow_pickle=True)", "pd.read_pickle(f)", "from peft.utils import load_peft_weights"],
)  # fmt: skip
def test_the_search_for_pickles_finds_them(source):
    assert list(unpicklers(source))


@pytest.fixture
def marker(tmp_path):
    return tmp_path / "marker"


def test_the_planted_pickle_would_leave_its_mark(tmp_path, marker):
    plant(tmp_path / "a.bin", marker)
    with torch.serialization.safe_globals([open]):
        torch.load(tmp_path / "a.bin", weights_only=False)
    assert marker.exists() and isinstance(Marking(marker).__reduce__(), tuple)


REFUSED = r"torch does not read .*io.open was not an allowed global|the loader of torch .* can be attacked"


def only_pickled(folder, copy, marker, name="pytorch_model.bin"):
    """Copy a model and replace its weights by a pickle that runs code."""
    shutil.copytree(folder, copy)
    (copy / "model.safetensors").unlink()
    plant(copy / name, marker)
    return copy


def index_of(folder, shard, index=INDEX):
    """Write an index that names one shard for all weights."""
    names = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / index).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, shard)}))


@pytest.mark.parametrize(
    ("family", "backbone"),
    [("bert", None), ("opt", None), ("t5", None), ("headless-bert", "embedding"), ("bert", "onnx")],
)
def test_a_pickle_that_would_run_code_is_refused(make_model, tmp_path, marker, family, backbone):
    copy = only_pickled(make_model(family), tmp_path / "copy", marker)
    with pytest.raises(ModelError, match=REFUSED):
        InBedder(copy, backbone=backbone)
    assert not marker.exists()


def test_a_pickled_shard_that_would_run_code_is_refused(make_model, tmp_path, marker):
    copy = shutil.copytree(make_model("bert"), tmp_path / "copy")
    index_of(copy, "pytorch_model-00001-of-00001.bin", PICKLED_INDEX)
    plant(copy / "pytorch_model-00001-of-00001.bin", marker)
    with pytest.raises(ModelError, match=REFUSED):
        InBedder(copy)
    assert not marker.exists()


@pytest.mark.parametrize(("index", "shard"), [(INDEX, "pytorch_model.bin"), (PICKLED_INDEX, "model.pkl")])
def test_an_index_that_names_another_kind_of_file_is_refused(make_model, tmp_path, marker, monkeypatch, index, shard):
    copy = shutil.copytree(make_model("bert"), tmp_path / "copy")
    index_of(copy, shard, index)
    plant(copy / shard, marker)
    with nothing_unpickled(monkeypatch, marker), pytest.raises(ModelError, match=rf"names '{shard}', which is not a \.\w+ file"):
        InBedder(copy)


@pytest.mark.parametrize("index", [INDEX, PICKLED_INDEX])
@pytest.mark.parametrize("shard", ["../outside", "/etc/outside", "a/../../outside"])
def test_an_index_that_leads_out_of_its_folder_is_refused(make_model, tmp_path, shard, index):
    copy = shutil.copytree(make_model("bert"), tmp_path / "copy")
    suffix = ".safetensors" if index == INDEX else ".bin"
    shutil.copy(copy / "model.safetensors", tmp_path / f"outside{suffix}")
    index_of(copy, f"{shard}{suffix}", index)
    with pytest.raises(ModelError, match="points outside its folder"):
        InBedder(copy)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged"),
        ("[]", "must hold an object"),
        ('{"metadata": {}}', "must hold metadata and a weight_map"),
        ('{"metadata": {}, "weight_map": {"a": 1}}', "names '1', which is not a .safetensors file"),
        (
            '{"metadata": {}, "weight_map": {"a": "b.safetensors"}}',
            "b.safetensors, which model.safetensors.index.json names, is missing",
        ),
    ],
)
def test_a_damaged_index_is_named(make_model, tmp_path, content, message):
    copy = shutil.copytree(make_model("bert"), tmp_path / "copy")
    (copy / "model.safetensors").unlink()
    (copy / INDEX).write_text(content)
    with pytest.raises(ModelError, match=message):
        InBedder(copy)


def test_shards_of_a_hub_cache_are_loaded_through_links(make_model, tmp_path):
    blob, snapshot = tmp_path / "blobs" / "1", tmp_path / "snapshots" / "main"
    blob.parent.mkdir()
    shutil.copytree(make_model("bert"), snapshot)
    shutil.copy(snapshot / "model.safetensors", blob)
    index_of(snapshot, "model-00001-of-00001.safetensors")
    (snapshot / "model-00001-of-00001.safetensors").symlink_to(blob)
    assert (InBedder(snapshot).encode("a", "What?") == InBedder(make_model("bert")).encode("a", "What?")).all()


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "adapter_model.bin", "../outside.safetensors"])
def test_a_configuration_that_names_other_weights_is_refused(make_model, tmp_path, marker, monkeypatch, weights):
    copy = shutil.copytree(make_model("bert"), tmp_path / "copy")
    plant(copy / Path(weights).name, marker)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "transformers_weights": weights}))
    with nothing_unpickled(monkeypatch, marker), pytest.raises(ModelError, match="must be safetensors in its own folder"):
        InBedder(copy)


def make_adapter(base, folder, model_class=AutoModelForMaskedLM):
    """Save a LoRA adapter with peft."""
    model = get_peft_model(model_class.from_pretrained(base), LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("change", [{}, {"use_rslora": True}])
def test_a_pickled_adapter_that_would_run_code_is_refused(make_model, tmp_path, marker, change):
    adapter = make_adapter(make_model("bert"), tmp_path / "adapter")
    (adapter / "adapter_model.safetensors").unlink()
    plant(adapter / "adapter_model.bin", marker)
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ModelError, match=REFUSED):
        InBedder(adapter)
    with pytest.raises(RecipeError, match="does not fit this recipe"):
        model = AutoModelForMaskedLM.from_pretrained(make_model("bert"))
        add_adapters(model, make_lora_config(Lora(r=4, alpha=8)), str(adapter))
    assert not marker.exists()


def test_an_adapter_on_a_pickle_with_code_or_on_another_adapter_is_refused(make_model, tmp_path, marker):
    base = only_pickled(make_model("bert"), tmp_path / "base", marker)
    adapter = make_adapter(make_model("bert"), tmp_path / "adapter")
    second = shutil.copytree(adapter, tmp_path / "second")
    for folder, stands_on in ((adapter, base), (second, adapter)):
        (folder / "inbedder.json").write_text(json.dumps({"base": str(stands_on)}))
    with pytest.raises(ModelError, match=REFUSED):
        InBedder(adapter)
    with pytest.raises(ModelError, match="is itself an adapter"):
        InBedder(second)
    assert not marker.exists()


@pytest.fixture
def sentence_loaders(make_model):
    """Return the functions that pass a folder to sentence-transformers."""
    model = InBedder(make_model("llama"), pooling="re-enc", max_new_tokens=2)

    def recipe(folder):
        return parse_recipe({"model": str(folder), "data": {"sources": ["none.jsonl"]}, "max_length": 32})

    return [
        lambda folder: model.replace(pooling="re-enc", reencoding=Reencoding(1, 0, encoder=str(folder))).encode("a", "What?"),
        lambda folder: load_encoder(recipe(folder)),
        lambda folder: load_mteb_model(str(folder)),
    ]


@pytest.mark.parametrize("place", [".", "2_Dense"])
def test_modules_that_would_run_code_are_refused_by_all_that_load_them(
    make_sentence_model, sentence_loaders, tmp_path, marker, place
):
    copy = shutil.copytree(make_sentence_model(dense=True), tmp_path / "copy")
    (copy / place / "model.safetensors").unlink()
    plant(copy / place / "pytorch_model.bin", marker)
    for load in [*sentence_loaders, InBedder]:
        with pytest.raises((ModelError, RecipeError), match=REFUSED):
            load(copy)
    assert not marker.exists()


def test_all_that_load_sentence_models_read_pickled_tensors(make_sentence_model, sentence_loaders, tmp_path):
    copy = shutil.copytree(make_sentence_model(dense=True), tmp_path / "copy")
    for place in (copy, copy / "2_Dense"):
        pickle_weights(place)
    for load in [*sentence_loaders, InBedder]:
        load(copy)


def test_an_adapter_with_code_within_a_sentence_model_is_refused(
    make_model, make_sentence_model, sentence_loaders, tmp_path, marker
):
    copy = shutil.copytree(make_sentence_model(), tmp_path / "copy")
    make_adapter(make_model("bert"), tmp_path / "adapter")
    shutil.copy(tmp_path / "adapter" / "adapter_config.json", copy)
    plant(copy / "adapter_model.bin", marker)
    for load in [*sentence_loaders, InBedder]:
        with pytest.raises((ModelError, RecipeError), match=REFUSED):
            load(copy)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("config.json", {"attn_implementation": "x/kernels"}),
        ("config.json", {"_attn_implementation": "x/kernels"}),
        ("config.json", {"_attn_implementation_internal": "x/kernels:attend"}),
        ("config.json", {"_attn_implementation": {"": "sdpa", "text_config": "x/kernels"}}),
        ("config.json", {"text_config": {"attn_implementation": "paged|x/kernels"}}),
        ("config.json", {"experts_implementation": "sonic-moe"}),
        ("config.json", {"layers": [{"_experts_implementation": "x/kernels"}]}),
        ("generation_config.json", {"attn_implementation": "x/kernels"}),
        ("tokenizer_config.json", {"attn_implementation": "x/kernels"}),
    ],
)
def test_a_kernel_of_another_repository_is_refused(make_model, tmp_path, monkeypatch, file, values):
    def refuse(*_args, **_options):
        raise AssertionError("transformers fetched a kernel")

    monkeypatch.setattr(modeling_utils, "lazy_import_flash_attention", refuse)
    copy = shutil.copytree(make_model("opt"), tmp_path / "copy")
    settings = json.loads((copy / file).read_text()) if (copy / file).is_file() else {}
    (copy / file).write_text(json.dumps({**settings, **values}))
    with pytest.raises(ModelError, match=rf"{file} sets '.*_implementation.*' to '.*', which would run code of another"):
        InBedder(copy)


@pytest.mark.parametrize("on_the_base", [False, True])
def test_a_kernel_in_an_adapter_or_its_base_is_refused(make_model, tmp_path, on_the_base):
    base = shutil.copytree(make_model("bert"), tmp_path / "base")
    adapter = make_adapter(make_model("bert"), tmp_path / "adapter")
    file = base / "config.json" if on_the_base else adapter / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "attn_implementation": "x/kernels"}))
    (adapter / "inbedder.json").write_text(json.dumps({"base": str(base)}))
    with pytest.raises(ModelError, match="which would run code of another repository"):
        InBedder(adapter)


def test_a_kernel_of_a_sentence_model_is_refused_by_all_loaders(make_sentence_model, sentence_loaders, tmp_path):
    for number, file in enumerate(("config.json", "sentence_bert_config.json")):
        copy = shutil.copytree(make_sentence_model(), tmp_path / str(number))
        settings = json.loads((copy / file).read_text())
        (copy / file).write_text(json.dumps({**settings, "model_args": {"attn_implementation": "x/kernels"}}))
        for load in [*sentence_loaders, InBedder]:
            with pytest.raises((ModelError, RecipeError), match="which would run code of another repository"):
                load(copy)


def test_implementations_that_are_installed_code_are_accepted(make_model, tmp_path):
    copy = shutil.copytree(make_model("opt"), tmp_path / "copy")
    settings = json.loads((copy / "config.json").read_text()) | {"attn_implementation": "eager"}
    (copy / "config.json").write_text(json.dumps(settings))
    (copy / "generation_config.json").write_text(json.dumps({"cache_implementation": "static"}))
    assert InBedder(copy).encode("a", "What?").shape == (32,)


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", "1_Pooling/../../elsewhere"])
def test_modules_outside_of_the_folder_are_refused(make_sentence_model, sentence_loaders, tmp_path, path):
    copy = shutil.copytree(make_sentence_model(dense=True), tmp_path / "copy")
    shutil.copytree(copy / "2_Dense", tmp_path / "elsewhere")
    modules = json.loads((copy / "modules.json").read_text())
    modules[2]["path"] = path
    (copy / "modules.json").write_text(json.dumps(modules))
    for load in [*sentence_loaders, InBedder]:
        with pytest.raises((ModelError, RecipeError), match="points outside its folder"):
            load(copy)


def test_code_of_a_sentence_model_does_not_run(make_sentence_model, sentence_loaders, tmp_path, marker):
    copy = shutil.copytree(make_sentence_model(), tmp_path / "copy")
    (copy / "custom.py").write_text(f"open({str(marker)!r}, 'w')\nclass Normalize: pass\n")
    modules = json.loads((copy / "modules.json").read_text())
    modules[2]["type"] = "custom.Normalize"
    (copy / "modules.json").write_text(json.dumps(modules))
    for load in [*sentence_loaders, InBedder]:
        with pytest.raises((ModelError, RecipeError), match=r"custom.Normalize"):
            load(copy)
    assert not marker.exists()


@pytest.mark.parametrize("encoding", [Encoding(), Encoding(kind="tri")], ids=["plain", "with a head"])
def test_a_conditional_encoder_reads_pickled_tensors_and_no_code(make_model, tmp_path, marker, encoding):
    ConditionalEncoder.of_base(make_model("bert"), encoding).save(tmp_path)
    expected = ConditionalEncoder.load(tmp_path).similarity(["a b"], ["a c"], condition=["What?"])
    (place,) = (path for path in (tmp_path, tmp_path / "backbone") if (path / "model.safetensors").is_file())
    pickle_weights(place)
    assert ConditionalEncoder.load(tmp_path).similarity(["a b"], ["a c"], condition=["What?"]) == expected
    plant(place / "pytorch_model.bin", marker)
    for load in (lambda: ConditionalEncoder.load(tmp_path), lambda: ConditionalEncoder.of_base(str(place), encoding)):
        with pytest.raises(ModelError, match=REFUSED):
            load()
    assert not marker.exists()


def test_vllm_is_given_no_pickle(make_model, tmp_path, monkeypatch):
    monkeypatch.setattr(vllm, "_find_version", lambda: "0")
    copy = shutil.copytree(make_model("opt"), tmp_path / "copy")
    pickle_weights(copy)
    adapter = make_adapter(make_model("opt"), tmp_path / "adapter", AutoModelForCausalLM)
    pickle_weights(adapter, "adapter_model")
    for folder in (copy, adapter):
        with pytest.raises(ModelError, match=rf"{folder} has pickled weights only.*inbedder models convert {folder} -o FOLDER"):
            InBedder(folder, backbone="vllm")
    assert InBedder(make_model("opt"), backbone="vllm").backbone.arguments["load_format"] == "safetensors"


def test_a_folder_with_both_kinds_of_weights_is_read_from_safetensors(make_model, tmp_path, marker, monkeypatch):
    copy = shutil.copytree(make_model("bert"), tmp_path / "copy")
    plant(copy / "pytorch_model.bin", marker)
    with nothing_unpickled(monkeypatch, marker):
        assert InBedder(copy).encode("a", "What?").shape == (32,)
        check_weights(ModelFiles(str(copy)))
        with pytest.raises(ModelError, match="is damaged"):
            list_shards(copy / "none.json", None)


def test_a_folder_without_weights_says_so(make_model, tmp_path):
    copy = shutil.copytree(make_model("bert"), tmp_path / "copy")
    (copy / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"holds no weights \(model.safetensors\)"):
        InBedder(copy)
    save_file({}, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lacks weights of its body"):
        InBedder(copy)
