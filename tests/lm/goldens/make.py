#!/usr/bin/env python3
"""Makes tests/lm/goldens/*.json with Hugging Face's library, `pip install tokenizers==0.23.3`.

Each file has a tokenizer, as its tokenizer.json, and cases: a text, whether special tokens are permitted and the
template applies, the ids, and the text of the ids decoded.
"""
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
PROSE = """In the beginning God created the heaven and the earth. And the earth was without form, and void; and
darkness was upon the face of the deep. And the Spirit of God moved upon the face of the waters. And God said, Let
there be light: and there was light. And God saw the light, that it was good: and God divided the light from the
darkness. And God called the light Day, and the darkness he called Night. And the evening and the morning were the
first day.  It's 1234567 o'clock, and we'll say: they've gone, I'm here, you'd better not.
for (int i = 0; i < 10; ++i) {\n\tprintf("%d\\n", i);\n}\n\n\n   Ünïcödé: naïve café, größer, Привет мир, 你好世界, こんにちは, 🙂🙂.
"""
TEXTS = [
    "", " ", "  ", "a", " a", "In the beginning", "the earth  was without form,\tand void", "light\n\nlight \n light  ",
    "It's WE'LL they've 'twas don''t", "1 12 123 1234 12345", "3.14159e-10", "naïve café größer", "Привет, мир!",
    "你好世界。こんにちは", "🙂🙂 🏳️‍🌈 e\u0301", "for (int i = 0; i < 10; ++i)\n", "\u00a0x\u3000y\u2028z", "<s>the<mask>  earth</s>",
    "the<|end|>earth <|end|> light", "<mask>", "  <mask>  the", "xWORDy WORD WORDx", "NORM norm Norm", "the <pad><pad> day",
    "a\u030a \u212b \ufb01ne \u0130I", "<s", "<|end|", "\x00\x01\x7f", "ſ's ſ'S 'ſ", "day</s> ", "x" * 70 + "thethethethe" * 12,
]
ADDED = [
    AddedToken("<mask>", lstrip=True, special=True, normalized=False),
    AddedToken("<|end|>", special=True, normalized=False),
    AddedToken("<pad>", rstrip=True, special=False, normalized=False),
    AddedToken("WORD", single_word=True, special=False, normalized=False),
    AddedToken("NORM", special=False, normalized=True),
]


def byte_level(pre, normalizer=None, vocabulary=420, ignore_merges=False):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    t.train_from_iterator([PROSE], trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<s>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    t.add_tokens(ADDED)
    if ignore_merges:
        data = json.loads(t.to_str())
        data["model"]["ignore_merges"] = True
        t = Tokenizer.from_str(json.dumps(data))
    return t


def sentencepiece_like():
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    base = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    base.normalizer = normalizer
    base.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    base.train_from_iterator([PROSE], trainers.BpeTrainer(vocab_size=520, special_tokens=names, show_progress=False))
    data = json.loads(base.to_str())
    data["pre_tokenizer"] = None
    data["model"]["byte_fallback"] = True
    data["added_tokens"] = [a for a in data["added_tokens"] if a["id"] < 3]
    t = Tokenizer.from_str(json.dumps(data))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    t.add_tokens(ADDED)
    return t


def cases(t):
    out = []
    for text in TEXTS:
        for special in (True, False):
            t.encode_special_tokens = not special
            ids = t.encode(text, add_special_tokens=special).ids
            out.append({"text": text, "special": special, "ids": ids,
                        "decoded": t.decode(ids, skip_special_tokens=False),
                        "skipped": t.decode(ids, skip_special_tokens=True)})
    t.encode_special_tokens = False
    return out


def write(name, t, **more):
    (HERE / f"{name}.json").write_text(json.dumps(
        {"tokenizer": json.loads(t.to_str()), "cases": cases(t), **more}, ensure_ascii=True, separators=(",", ":")) + "\n")


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
write("gpt2", byte_level(gpt2), prose=PROSE)
write("prefix", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), normalizers.NFC()))
write("digits", byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])), prose=PROSE)
write("llama3", byte_level(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), bytes_only]),
                           ignore_merges=True))
write("removed", byte_level(pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex(r"[^\s]+|\n"), "removed", invert=True), pre_tokenizers.Split("e", "isolated"), bytes_only]),
    normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])))
write("sentencepiece", sentencepiece_like())
