"""Chat templates that know tools, as well-known models have them, over a small tokenizer."""

from bpe_tokenizers import make_bpe
from transformers import PreTrainedTokenizerFast

from gem.tokens.chat_template import ChatTemplateRenderer

SPECIAL = [
    "<bos>", "<eos>", "<pad>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
    "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
]  # fmt: skip

CALLS = """\
{%- for call in message.tool_calls -%}
{%- if call.function is defined -%}{%- set call = call.function -%}{%- endif -%}
{{- '\n<tool_call>\n{"name": "' + call.name + '", "arguments": ' -}}
{{- call.arguments if call.arguments is string else call.arguments | tojson -}}
{{- '}\n</tool_call>' -}}
{%- endfor -%}
"""

QWEN = (
    """\
{%- if tools -%}
{{- '<|im_start|>system\n' -}}
{%- if messages[0].role == 'system' -%}{{- messages[0].content -}}{%- endif -%}
{{- '\n\n# Tools\n\n<tools>' -}}
{%- for tool in tools -%}{{- '\n' + (tool | tojson) -}}{%- endfor -%}
{{- '\n</tools>\n\nCall with <tool_call></tool_call> tags.<|im_end|>\n' -}}
{%- elif messages[0].role == 'system' -%}
{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first)
   or (message.role == 'assistant' and not message.tool_calls) -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- elif message.role == 'assistant' -%}
{{- '<|im_start|>assistant' -}}
{%- if message.content -%}{{- '\n' + message.content -}}{%- endif -%}
"""
    + CALLS
    + """\
{{- '<|im_end|>\n' -}}
{%- elif message.role == 'tool' -%}
{%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""
)

# Tools stand in the first message of the user, one call is in an answer, and its text is lost.
LLAMA = """\
{{- '<bos>' -}}
{%- if not tools is defined -%}{%- set tools = none -%}{%- endif -%}
{%- for message in messages -%}
{%- if message.tool_calls -%}
{%- if message.tool_calls | length != 1 -%}{{- raise_exception('single tool-calls at once') -}}{%- endif -%}
{%- set call = message.tool_calls[0].function -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{{- '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}<|eot_id|>' -}}
{%- elif message.role == 'tool' or message.role == 'ipython' -%}
{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' + message.content + '<|eot_id|>' -}}
{%- else -%}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' -}}
{%- if loop.first and tools -%}
{%- for tool in tools -%}{{- (tool | tojson(indent=4)) + '\n\n' -}}{%- endfor -%}
{%- endif -%}
{{- message.content | trim + '<|eot_id|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}{%- endif -%}
"""

# A template of its own for tools, beside the default one.
HERMES = {
    "default": """\
{{- '<bos>' -}}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
""",
    "tool_use": """\
{{- '<bos><|im_start|>system\nYou may call <tools>' -}}
{%- for tool in tools -%}{{- ' ' + (tool | tojson) -}}{%- endfor -%}
{{- ' </tools><|im_end|>\n' -}}
{%- for message in messages -%}
{%- if message.role == 'assistant' and message.tool_calls is defined -%}
{{- '<|im_start|>assistant' -}}
"""
    + CALLS
    + """\
{{- '<|im_end|>\n' -}}
{%- elif message.role == 'tool' -%}
{%- if not message.name is defined -%}{{- raise_exception('Tool response must have a name') -}}{%- endif -%}
{%- if messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>tool\n' -}}{%- endif -%}
{{- '<tool_response>\n' + message.content + '\n</tool_response>\n' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
{%- else -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
""",
}

# Results have to follow calls, ids have nine characters, tools stand before the latest message of the user.
MISTRAL = """\
{{- '<bos>' -}}
{%- set users = messages | selectattr('role', 'equalto', 'user') | list -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
{%- if tools is not none and message == users[-1] -%}
{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' -}}
{%- endif -%}
{{- '[INST]' + message.content + '[/INST]' -}}
{%- elif message.tool_calls is defined -%}
{{- '[TOOL_CALLS][' -}}
{%- for call in message.tool_calls -%}
{%- if call.id | length != 9 -%}{{- raise_exception('ids of length 9!') -}}{%- endif -%}
{{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' + (']<eos>' if loop.last else ', ') -}}
{%- endfor -%}
{%- elif message.role == 'assistant' -%}
{{- message.content + '<eos>' -}}
{%- elif message.role == 'tool' -%}
{%- set before = messages[loop.index0 - 1] -%}
{%- if before.role != 'tool' and not before.tool_calls -%}
{{- raise_exception('a result must follow a call') -}}
{%- endif -%}
{{- '[TOOL_RESULTS]{"content": ' + (message.content | tojson) + ', "call_id": "' + message.tool_call_id -}}
{{- '"}[/TOOL_RESULTS]' -}}
{%- endif -%}
{%- endfor -%}
"""

# As SmolLM2's and DeepSeek's: arguments are text.
STRINGS = """\
{%- if tools -%}{{- '<|im_start|>system\nTools: ' + (tools | tojson) + '<|im_end|>\n' -}}{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + message.content -}}
{%- for call in message.tool_calls or [] -%}
{{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments -}}
{{- '}</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""

PLAIN = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""

TEMPLATES = {"qwen": QWEN, "llama": LLAMA, "hermes": HERMES, "mistral": MISTRAL, "strings": STRINGS}


_TEXTS = ['{"name": "bash", "arguments": {"command": "ls"}}', "assistant user tool"] * 3
_BPE = make_bpe(_TEXTS, 340, SPECIAL)


def renderer(style, **options):
    """Return a renderer by one of the templates; each has a tokenizer of its own."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=_BPE, eos_token="<eos>", pad_token="<pad>")
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL[3:]})
    tokenizer.chat_template = TEMPLATES.get(style, PLAIN)
    return ChatTemplateRenderer(tokenizer, **options)
