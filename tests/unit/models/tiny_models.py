"""Tiny random models on disk, as a user would bring them: real transformers, made once a run."""

WORDS = "the visit was late and my bill is ready please help with an appointment for text label"
BOS, EOS = "<s>", "</s>"
CHAT = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_tokenizer(folder, *, chat=False, eos=True):
    """A byte-level BPE tokenizer that puts a BOS before every text; returns its size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = [BOS, EOS, "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        [WORDS] * 9,
        trainers.BpeTrainer(
            vocab_size=330, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        ),
    )
    raw.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, raw.token_to_id(BOS))]
    )
    end = "<|im_end|>" if chat else EOS
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token=BOS,
        eos_token=end if eos else None,
        chat_template=CHAT if chat else None,
    )
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def save_llama(folder, *, chat=False, eos=True, **settings):
    """Grouped queries and awkward sizes: the shapes BLAS kernels treat apart."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    options = {
        "vocab_size": save_tokenizer(folder, chat=chat, eos=eos), "hidden_size": 36,
        "intermediate_size": 50, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 3, "head_dim": 10, "max_position_embeddings": 128,
        "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": [3, 1] if chat else 1,
    }  # fmt: skip
    LlamaForCausalLM(LlamaConfig(**{**options, **settings})).save_pretrained(folder)
    return folder


def _save(folder, seed, family, head="ForCausalLM", **sizes):
    import torch
    import transformers

    torch.manual_seed(seed)
    vocabulary = save_tokenizer(folder)
    config = getattr(transformers, f"{family}Config")(vocab_size=vocabulary, **sizes)
    getattr(transformers, f"{family}{head}")(config).save_pretrained(folder)
    return folder


_SMALL = {"hidden_size": 32, "num_hidden_layers": 2}
_WIDE = {"intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 128}
_HEADS = {"num_attention_heads": 4, "initializer_range": 0.3, "eos_token_id": 1}


def save_gpt2(folder):
    """Learned positions, biases, transposed weights."""
    sizes = {"n_embd": 36, "n_layer": 2, "n_head": 3, "n_positions": 128, "initializer_range": 0.3}
    return _save(folder, 2, "GPT2", "LMHeadModel", **sizes, bos_token_id=0, eos_token_id=1)


def save_sliding(folder):
    """Mistral with a window shorter than the prompts."""
    return _save(folder, 3, "Mistral", **_SMALL, **_WIDE, **_HEADS, sliding_window=8)


def save_hybrid(folder):
    """LFM 2: a convolution with a state of its own before the attention."""
    layers = ["conv", "full_attention"]
    return _save(folder, 5, "Lfm2", **_SMALL, **_WIDE, **_HEADS, layer_types=layers)


def save_falcon(folder):
    """Attention of its own, one key head for all queries."""
    return _save(folder, 6, "Falcon", **_SMALL, **_HEADS)


def save_mamba(folder):
    """A state-space model: no keys, no values."""
    return _save(folder, 0, "Mamba", **_SMALL, state_size=8)


def save_softcapped(folder):
    """Gemma 2: capped attention scores, every other layer with a sliding window."""
    return _save(folder, 4, "Gemma2", **_SMALL, **_WIDE, **_HEADS, head_dim=8, sliding_window=8)


def save_mixtral(folder):
    """Four experts that share rows out among them."""
    return _save(folder, 7, "Mixtral", **_SMALL, **_WIDE, **_HEADS, num_local_experts=4)


def save_bert(folder, **settings):
    """A BERT as it is published: attention in both directions, no end-of-text token."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    torch.manual_seed(3)
    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    raw.train_from_iterator(
        [WORDS] * 9,
        trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False),
    )
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    tokenizer.save_pretrained(folder)
    options = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128,
        "initializer_range": 0.3,
    }  # fmt: skip
    BertForMaskedLM(BertConfig(**{**options, **settings})).save_pretrained(folder)
    return folder
