"""Tiny tokenizers with the chat templates of published models, whose tools and earlier turns are left out."""

import shutil

from transformers import AddedToken, AutoTokenizer, PreTrainedTokenizerFast

from tests.conftest import byte_level_tokenizer, llama_like_tokenizer

QWEN3 = r"""{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"""

LLAMA3 = r"""{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}"""

GEMMA3 = r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model
' }}
{%- endif -%}"""

GEMMA2 = (
    r"""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"""
    r"""{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}"""
)

SMOLLM3 = r"""{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- if enable_thinking -%}{%- set reasoning_mode = "/think" -%}{%- else -%}{%- set reasoning_mode = "/no_think" -%}{%- endif -%}
{{- "<|im_start|>system\n" -}}
{%- if messages[0].role == "system" -%}
    {%- set system_message = messages[0].content -%}
    {%- if "/no_think" in system_message -%}{%- set reasoning_mode = "/no_think" -%}{%- endif -%}
    {%- set custom_instructions = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "## Metadata\n\n" -}}
{{- "Knowledge Cutoff Date: June 2025\n" -}}
{%- set today = strftime_now("%d %B %Y") -%}
{{- "Today Date: " ~ today ~ "\n" -}}
{{- "Reasoning Mode: " + reasoning_mode + "\n\n" -}}
{{- "## Custom Instructions\n\n" -}}
{%- if custom_instructions -%}{{- custom_instructions + "\n\n" -}}{%- endif -%}
{{- "<|im_end|>\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}{{ "<|im_start|>" + message.role + "\n"  + content + "<|im_end|>\n" }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {%- if reasoning_mode == "/think" -%}{{ "<|im_start|>assistant\n" }}
    {%- else -%}{{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n" }}{%- endif -%}
{%- endif -%}"""

PHI3 = r"""{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}"""

PHI4 = (
    r"""{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + """
    r"""message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + """
    r"""message['content'] + '<|im_end|>'}}{% endif %}{% endfor %}{% if add_generation_prompt %}"""
    r"""{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"""
)

FAMILIES = {
    "qwen3": (byte_level_tokenizer, QWEN3, ["<|im_start|>", "<|im_end|>"], ["<think>", "</think>"]),
    "llama-3": (byte_level_tokenizer, LLAMA3, ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], []),
    "gemma-3": (llama_like_tokenizer, GEMMA3, ["<start_of_turn>", "<end_of_turn>"], ["\n\n"]),
    "gemma-2": (llama_like_tokenizer, GEMMA2, ["<start_of_turn>", "<end_of_turn>"], ["\n\n"]),
    "smollm3": (byte_level_tokenizer, SMOLLM3, ["<|im_start|>", "<|im_end|>"], ["<think>", "</think>"]),
    "phi-3": (llama_like_tokenizer, PHI3, ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"], []),
    "phi-4": (byte_level_tokenizer, PHI4, ["<|im_start|>", "<|im_sep|>", "<|im_end|>"], []),
}
"""For each family its tokenizer without a chat, its template, its special tokens and its plain added tokens."""
STRIPPING = ("llama-3", "gemma-3", "gemma-2")
"""The families whose templates strip the user message."""


def make_chat_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """Make the tokenizer of a family."""
    make = FAMILIES[family][0]
    tokenizer = make(bos_token="<s>", eos_token="</s>") if make is byte_level_tokenizer else make()
    add_chat(tokenizer, family)
    return tokenizer


def add_chat(tokenizer: PreTrainedTokenizerFast, family: str) -> None:
    """Add a family's tokens and template; blanks after Phi-3's special tokens are lost, as in the published tokenizer."""
    _, template, specials, plain = FAMILIES[family]
    strips = family == "phi-3"
    tokenizer.add_tokens(
        [AddedToken(one, special=True, normalized=False, rstrip=strips) for one in specials], special_tokens=True
    )
    tokenizer.add_tokens([AddedToken(one, special=False, normalized=False) for one in plain])
    tokenizer.chat_template = template


def write_chat_model(model_folder: str, target: str, family: str) -> str:
    """Copy a tiny model and give it a family's chat; return the copy's folder."""
    shutil.copytree(model_folder, target)
    tokenizer = AutoTokenizer.from_pretrained(target)
    add_chat(tokenizer, family)
    tokenizer.save_pretrained(target)
    return str(target)
