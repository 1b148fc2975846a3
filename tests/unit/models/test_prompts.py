"""Prompts as tokens: special tokens stay out of references, BOS comes once, spaces merge."""

import pytest

from privsyn.errors import ConfigError, ModelError
from privsyn.models.language.prompts import CHARS_PER_TOKEN, CHAT, PLAIN, PromptEncoder
from privsyn.models.protocols import PromptTemplate
from privsyn.models.references import BUILTIN
from privsyn.models.rows import Subject, row_words, with_columns, with_row


@pytest.fixture
def encoder(folders):
    from transformers import AutoTokenizer

    def make(name):
        folder = BUILTIN if name == "tiny" else folders(name)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        return tokenizer, PromptEncoder(tokenizer, name)

    return make


@pytest.mark.parametrize(
    ("name", "marks"),
    [("tiny", ["<|start|>", "<|end|>"]), ("chat", ["<s>", "</s>", "<|im_start|>", "<|im_end|>"])],
)
def test_special_tokens_in_a_reference_are_plain_text(encoder, name, marks):
    tokenizer, prompts = encoder(name)
    text = "one" + "two".join(marks) + "three"
    ids = prompts.reference(text, " ", 200)
    special = {tokenizer.convert_tokens_to_ids(mark) for mark in marks}
    assert not special & set(ids)
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == " " + text
    template = PromptTemplate("".join(marks) + "{reference}", marks[0])
    before, _, _ = prompts.private(template, None)
    assert special <= set(before)  # in a template they are what they say
    assert not special & set(prompts.reference(text, "", 200))  # and no state is left behind


def test_pieces_are_the_tokens_of_the_whole(encoder):
    """The tiny model is read as it was trained: the space belongs to the word after it."""
    tokenizer, prompts = encoder("tiny")
    template = PromptTemplate("<|start|>Text: {reference}<|end|>Text:", "<|start|>Text:")
    before, lead, after = prompts.private(template, None)
    ids = [*before, *prompts.reference("The visit was late.", lead, 64), *after]
    whole = "<|start|>Text: The visit was late.<|end|>Text:"
    assert ids == tokenizer(whole)["input_ids"]
    assert prompts.public(template, None) == before


def test_a_prompt_says_the_row_of_a_key_and_no_line_without_one(encoder):
    tokenizer, prompts = encoder("tiny")
    template = PromptTemplate(
        *map(with_columns, ("Topic: {label}\nText: {reference}", "Topic: {label}\nText:"))
    )
    key = with_row("sleep", row_words({"age": "40 to 49", "channel": "web"}))
    row = "Topic: sleep\nDetails: age: 40 to 49, channel: web\nText:"
    assert tokenizer.decode(prompts.public(template, key)) == row
    assert tokenizer.decode(prompts.private(template, key)[0]).rstrip() == row
    assert tokenizer.decode(prompts.public(template, "sleep")) == "Topic: sleep\nText:"
    assert tokenizer.decode(prompts.public(template, with_row(None, row_words({"age": "1"})))) == (
        "Details: age: 1\nText:"
    )
    # a prefix that rows share ends before them, and the longest row sets the width
    shared = prompts.shared_tokens(template, [key])
    assert len(shared) < len(prompts.public(template, "sleep"))
    assert prompts.length(template, [key, "a"]) == len(prompts.private(template, key)[0])


def test_a_prompt_names_columns_one_by_one(encoder):
    tokenizer, prompts = encoder("tiny")
    public = "By {columns.sent by}, {label}\nAged {columns.age}.\nText:"
    assert with_columns(public) == public
    template = PromptTemplate(public + " {reference}", public)
    key = with_row("sleep", row_words({"age": "40 to 49", "sent by": "{label}"}))
    assert tokenizer.decode(prompts.public(template, key)) == (
        "By {label}, sleep\nAged 40 to 49.\nText:"
    )
    # a prompt says that a value is missing, and a prefix that rows share ends before the first
    without = with_row("sleep", row_words({"age": "", "sent by": "web"}))
    assert tokenizer.decode(prompts.public(template, without)) == (
        "By web, sleep\nAged unknown.\nText:"
    )
    assert tokenizer.decode(prompts.public(template, "sleep")) == "Text:"
    shared = prompts.shared_tokens(template, [key])
    assert len(shared) < len(tokenizer("By web")["input_ids"])
    with pytest.raises(ConfigError, match=r"\{columns.agee\}.*dataset.columns"):
        Subject(columns=("age",)).fill("Aged {columns.agee}")
    with pytest.raises(ConfigError, match=r"\{columns.age\}"):
        Subject().fill("Aged {columns.age}")


def test_chat_is_one_user_message_with_a_generation_prompt(encoder):
    tokenizer, prompts = encoder("chat")
    before, lead, after = prompts.private(CHAT, "Billing")
    text = tokenizer.decode([*before, *prompts.reference("my bill", lead, 20), *after])
    assert text.count("<|im_start|>user") == 1
    assert text.endswith("<|im_start|>assistant\n")
    assert "Label: Billing\nExample: my bill\n" in text
    public = tokenizer.decode(prompts.public(CHAT, "Billing"))
    assert public == text.replace("my bill", "")  # one template, the reference empty


def test_a_chat_prompt_may_be_several_messages_and_begin_the_answer(encoder):
    tokenizer, prompts = encoder("chat")
    template = PromptTemplate(
        "One note on {label}.\n[assistant]\n{reference}\n[user]\nAnother.\n[assistant]\nText:",
        "One note on {label}.\n[assistant]\nText:",
        chat=True,
        labels=(("Billing", "a bill"),),
    )
    before, lead, after = prompts.private(template, "Billing")
    said = tokenizer.decode([*before, *prompts.reference("my [user]\nbill", lead, 20), *after])
    assert "<|im_start|>user\nOne note on a bill.<|im_end|>" in said
    assert "<|im_start|>assistant\nmy [user]\nbill<|im_end|>" in said  # a reference stays one
    assert said.endswith("<|im_start|>user\nAnother.<|im_end|>\n<|im_start|>assistant\nText:")
    public = tokenizer.decode(prompts.public(template, "Symptoms"))
    assert "One note on Symptoms.<|im_end|>" in public
    assert public.endswith("<|im_start|>assistant\nText:")
    length = prompts.length(template, ["Billing"])
    assert length == len(before) + len(after)
    long = PromptTemplate("{label} {reference}", "{label}", labels=(("a", "late " * 40),))
    with pytest.raises(ModelError, match="longer than the 32 tokens"):
        prompts.length(long, ["a"])


def test_label_line_goes_where_there_is_no_label(encoder):
    tokenizer, prompts = encoder("llama")
    before, _, after = prompts.private(PLAIN, None)
    assert "abel" not in tokenizer.decode(before) + tokenizer.decode(after)
    joined = PromptTemplate("{label}: {reference}", "{label}:\ngo")
    assert tokenizer.decode(prompts.private(joined, None)[0]) == "<s>:"
    assert tokenizer.decode(prompts.public(joined, None)) == "<s>go"


def test_a_label_has_its_room_and_no_more(encoder):
    _, prompts = encoder("llama")
    sizes = {
        label: len(before) + len(after)
        for label in ("Billing", None, "Letters about a bill")
        for before, _, after in [prompts.private(PLAIN, label)]
    }
    # The longest of all that are declared, whichever have records; without labels, a bound.
    assert prompts.length(PLAIN, sizes) == max(sizes.values()) > sizes["Billing"] > sizes[None]
    assert prompts.length(PLAIN) > sizes[None] + 2 * 32
    with pytest.raises(ModelError, match=r"label 'late late .* longer than the 32 tokens"):
        prompts.length(PLAIN, ["Billing", "late " * 40])


def test_reference_is_cut_and_total(encoder):
    for name in ("tiny", "chat"):
        _, prompts = encoder(name)
        for text in ("", " ", "\0\x1b\ud800\udfff", "\U0001f600" * 999, "a\n\n\tb", "x" * 10**6):
            assert len(prompts.reference(text, " ", 7)) <= 7
        long = prompts.reference("late " * 10**6, " ", 7)
        assert long == prompts.reference(("late " * 10**6)[: 7 * CHARS_PER_TOKEN], " ", 7)


def test_sentencepiece_style_pieces_do_not_gain_spaces(tmp_path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE(byte_fallback=False))
    raw.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    raw.decoder = decoders.Metaspace(prepend_scheme="first")
    raw.train_from_iterator(
        ["Text: the visit was late\n"] * 9,
        trainers.BpeTrainer(vocab_size=80, special_tokens=["</s>"], show_progress=False),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>")
    prompts = PromptEncoder(tokenizer, "m")
    template = PromptTemplate("Text: {reference}\nText:", "Text:")
    before, lead, after = prompts.private(template, None)
    ids = [*before, *prompts.reference("the visit", lead, 9), *after]
    assert ids == tokenizer("Text: the visit\nText:")["input_ids"]


@pytest.mark.parametrize(
    ("template", "match"),
    [
        (PromptTemplate("no slot", "x"), "exactly once"),
        (PromptTemplate("{reference}{reference}", "x"), "exactly once"),
        (PromptTemplate("x {reference}", "x {reference}"), "must not contain"),
        (PromptTemplate("x {reference}", "y", chat=True), "no chat template"),
    ],
)
def test_templates_that_cannot_be(encoder, template, match):
    _, prompts = encoder("gpt2")
    ask = prompts.public if "not contain" in match else prompts.private
    with pytest.raises(ModelError, match=match):
        ask(template, None)


# Shapes of chat templates in use, cut down to what is peculiar to each.
SHAPES = {
    "Mistral Small 3": "{%- set today = strftime_now('%Y-%m-%d') %}\n"
    "{%- set default_system = 'Today is ' + today + '.' %}\n{{- bos_token }}\n"
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}"
    "{%- set loop_messages = messages[1:] %}\n{%- else %}{%- set system = default_system %}"
    "{%- set loop_messages = messages %}\n{%- endif %}\n"
    "{{- '[SYSTEM_PROMPT]' + system + '[/SYSTEM_PROMPT]' }}\n"
    "{%- for m in loop_messages %}{%- if m['role'] == 'user' %}"
    "{{- '[INST]' + m['content'] + '[/INST]' }}{%- else %}{{- m['content'] + eos_token }}"
    "{%- endif %}{%- endfor %}",
    "Llama 3": "{{- bos_token }}\n{%- if not date_string is defined %}\n"
    "    {%- if strftime_now is defined %}\n"
    "        {%- set date_string = strftime_now('%d %b %Y') %}\n    {%- else %}\n"
    "        {%- set date_string = '26 Jul 2024' %}\n    {%- endif %}\n{%- endif %}\n"
    "{{- 'Today Date: ' + date_string + '\n\n' }}\n"
    "{%- for m in messages %}\n{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' "
    "+ m['content'] | trim + '<|eot_id|>' }}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}\n{%- endif %}\n",
    "Gemma 3": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if m['role'] not in ['user', 'assistant'] or "
    "(m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    "DeepSeek R1": "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
    "<\uff5cUser\uff5c>{{ m['content'] }}{% else %}<\uff5cAssistant\uff5c>"
    "{{ m['content'].split('</think>')[-1] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<\uff5cAssistant\uff5c><think>\n{% endif %}",
    "gpt-oss": "<|start|>system<|message|>Current date: {{ strftime_now('%Y-%m-%d') }}\n"
    "# Valid channels: analysis, commentary, final.<|end|>{% for m in messages %}"
    "<|start|>{{ m['role'] }}<|message|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if false %}<|channel|>{% endif %}{% if add_generation_prompt %}<|start|>assistant"
    "{% endif %}",
}


def templated(encoder, template):
    tokenizer, _ = encoder("chat")
    tokenizer.chat_template = template
    return tokenizer, PromptEncoder(tokenizer, "m")


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_chat_templates(encoder, name, monkeypatch):
    import datetime

    from transformers.utils import chat_template_utils

    from privsyn.models.language import prompts as module

    class Day(datetime.datetime):
        day_of = datetime.date(2031, 2, 3)

        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.combine(cls.day_of, datetime.time())

    monkeypatch.setattr(chat_template_utils, "datetime", Day)
    template = PromptTemplate("Write one.\n{reference}", "Write one.", chat=True)
    rendered = []
    for day in (datetime.date(2031, 2, 3), datetime.date(2032, 5, 6)):
        Day.day_of = day
        tokenizer, prompts = templated(encoder, SHAPES[name])
        before, _, after = prompts.private(template, None)
        rendered.append(tokenizer.decode([*before, *after]))
        assert prompts.whole("Write one.", 200)
        assert "Write one." in tokenizer.decode(prompts.public(template, None))
    assert rendered[0] == rendered[1]  # on two days
    assert "203" not in rendered[0]
    if "strftime_now" in SHAPES[name]:
        assert "2025" in rendered[0]
    assert module.close_thought(rendered[0]) == rendered[0]  # no thought is left open


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("%d %b %Y", "01 Jan 2025"),
        ("%Y-%m-%d", "2025-01-01"),
        ("%B %-d, %Y", "January 1, 2025"),
        ("%A, 100%%", "Wednesday, 100%"),
        ("%H:%M:%S", "00:00:00"),
    ],
)
def test_a_template_sees_one_public_day(encoder, form, says):
    template = "\n  {% if true %}{{ strftime_now(FORM) }}{% endif %}{{ messages[0].content }}"
    tokenizer, prompts = templated(encoder, template.replace("FORM", repr(form)))
    ids = prompts.public(PromptTemplate("{reference}", " go", chat=True), None)
    assert tokenizer.decode(ids) == f"\n{says} go"  # and its own white space stays


SYSTEM = PromptTemplate("[system]\nBe brief.\n[user]\n{reference}", "[user]\nGo.", chat=True)


@pytest.mark.parametrize(
    ("template", "prompt", "says"),
    [
        (SHAPES["Gemma 3"], SYSTEM, r"refuses the prompt: System role not supported \(Templ"),
        ("{{ raise_exception('only with tools') }}", CHAT, "refuses the prompt: only with tools"),
        ("{% for m in messages %}", CHAT, r"refuses .*Unexpected end of template"),
        ("{{ tools[0].name }}{{ messages[0].content }}", CHAT, r"refuses the prompt: .*None"),
        ({"rag": "x", "tool_use": "y"}, CHAT, r"several chat templates \(rag, tool_use\)"),
        ("{{ messages[0].content | upper }}", CHAT, "does not keep a message whole"),
    ],
)
def test_a_template_that_raises_is_quoted(encoder, template, prompt, says):
    _, prompts = templated(encoder, template)
    with pytest.raises(ModelError, match=says) as caught:
        prompts.length(prompt, [None])
    assert len(str(caught.value).splitlines()) == 1
    assert "privsyn reference" not in str(caught.value)


def test_bos_comes_once(encoder):
    tokenizer, prompts = encoder("chat")
    bos = tokenizer.bos_token_id
    for template in (CHAT, PLAIN, PromptTemplate("<s>{reference}", "<s>x")):
        for ids in (prompts.public(template, "a"), prompts.private(template, "a")[0]):
            assert ids[0] == bos
            assert ids.count(bos) == 1


def test_empty_prompt_is_refused(encoder):
    _, prompts = encoder("tiny")  # its tokenizer adds no BOS
    with pytest.raises(ModelError, match="empty before its first token"):
        prompts.public(PromptTemplate("{reference}", ""), None)
