"""Lists made from the headers: every operation, every struct of options."""
import html
import re

from . import undocumented
from .markup import page_of
from .model import flat

_OPERATIONS = ("firn/ops/", "firn/checkpoint.h")
_NO_GRADIENT = re.compile(r"(?<!has )\bno gradient|not recorded", re.IGNORECASE)


def _raw(text):
    return f"```{{raw}} html\n{text}\n```\n"


def _comment(name, library):
    found = undocumented.explain(name, library)
    return found.source.text if found and found.source else ""


def _first_sentence(text):
    return re.split(r"(?<!\bal)(?<!\be\.g)(?<!\.)\. ", text)[0].rstrip(".")


def _lists(root):
    """(function, struct, macro) of the lists of formulas in kernels/math, and the bodies of their structs."""
    entries, structs = [], {}
    for name in ("operation", "activation", "trigonometry", "unary", "loss", "binary"):
        text = (root / f"kernels/math/{name}.h").read_text(encoding="utf-8")
        for struct, base, body in re.findall(r"^struct (\w+)(?: : (\w+))? \{(\};|.*?^\};)", text,
                                               re.MULTILINE | re.DOTALL):
            structs[struct] = (base, body)
        for macro, base in re.findall(r"^#define (FIRN_\w+)\(Name, \w+\) *\\\n *struct Name : (\w+)", text, re.MULTILINE):
            structs.update({struct: (base, "") for struct in re.findall(rf"^{macro}\((\w+), ", text, re.MULTILINE)})
        entries += [(op, struct, kind) for kind, op, struct in re.findall(r"^  ([A-Z_]+)\((\w+), (\w+)", text, re.MULTILINE)]
    return entries, structs


def _declared(struct, structs, constant):
    """The value of a constant of a struct, or of the one that it is derived from."""
    while struct in structs:
        base, body = structs[struct]
        if own := re.search(rf"\b{constant} = ([\w:]+);", body):
            return own[1]
        struct = base
    return None


def autocast_policies(library):
    """operation -> what autocast does to it: the table at the head of ops/autocast.h."""
    table = library.headers["firn/ops/autocast.h"].partition("The rule of each family")[2].partition("//\n// An f16")[0]
    rows = re.split(r"\n//   (?=\S)", table)[1:]
    found = {}
    for row in rows:
        key, _, names = re.sub(r"\n//\s*", " ", row).partition("  ")
        for name in re.findall(r"\w+", names):
            found.setdefault(name, key.strip())
    return found


def _policy(name, policies):
    for word in (name.name, *(["losses"] if name.file == "firn/ops/losses.h" else []),
                 *(["comparisons"] if re.fullmatch(r"eq|ne|lt|le|gt|ge", name.name) else [])):
        if word in policies:
            return policies[word]
    return policies["else"]


def _has_gradient(name, comment):
    """Every operation on tensors is recorded, but for those whose comment says that it has no gradient."""
    return re.search(r"\bTensor\b|\bLoss\b", name.arguments) and not _NO_GRADIENT.search(comment)


def disagreements(library, root):
    """Where the lists of formulas in kernels/math say something else than the headers: problems."""
    entries, structs = _lists(root)
    words = {"lower": "the guard's dtype", "fp32": "f32", "promote": "the widest dtype", "keep": "the dtype given"}
    policies, problems = autocast_policies(library), []
    for op, struct, kind in entries:
        names = library.by_qualified.get(f"firn::{op}")
        if not names or kind not in ("PLAIN", "ONE", "TWO", "QUESTION", "OPERATOR", "WITH_NUMBER"):
            continue
        own = words[_declared(struct, structs, "autocast").removeprefix("Autocast::")]
        if own != _policy(names[0], policies) and _declared(struct, structs, "gives_bool") != "true":
            problems.append(f"include/firn/ops/autocast.h: {op} runs in {own}, says kernels/math")
        comment = _comment(names[0], library)
        gradient = _declared(struct, structs, "gives_bool") != "true" and _declared(struct, structs, "floats") != "false"
        if bool(_has_gradient(names[0], comment)) != gradient:
            problems.append(f"include/{names[0].file}: {op}: whether it has a gradient is another thing in kernels/math")
    return problems


def operations(library, markup, root):
    """The page of operations: functions of the headers in ops/, a row each name."""
    out = ["# Operations\n",
           "Functions in namespace `firn` that take tensors and give tensors or losses, by header. Forms: *method*, "
           "also a member of `Tensor`; *in place*, also as `name_`. Under autocast an operation runs in the dtype that "
           "[autocast.h](ops-autocast.md) says. Rules for dtypes, devices and errors are in [ops.h](ops-ops.md).\n"]
    by_header, rows = {}, 0
    policies = autocast_policies(library)
    for name in library.names:
        if name.kind == "function" and name.scope == "firn" and name.file.startswith(_OPERATIONS) \
                and not name.name.startswith("operator"):
            by_header.setdefault(name.file, {}).setdefault(name.qualified, []).append(name)
    methods = {n.name for n in library.names if n.scope == "firn::Tensor" and n.kind == "function"}
    for header, names in by_header.items():
        shown = []
        for overloads in names.values():
            first = next((o for o in overloads if o.has_comment), overloads[0])
            if not re.search(r"\bTensor\b|\bLoss\b|\bMoments\b|\bTopk\b|\bSorted\b", first.type + first.arguments):
                continue
            plain = first.name.rstrip("_")
            if plain != first.name and f"firn::{plain}" in library.by_qualified:
                continue
            forms = [form for form, holds in (("method", first.name in methods),
                                              ("in place", f"firn::{first.name}_" in library.by_qualified)) if holds]
            arguments = ", ".join(flat(p.find("declname")) for p in first.xml.findall("param"))
            comment = _comment(first, library)
            policy = _policy(first, policies) if "Tensor" in first.arguments else ""
            shown.append(
                f"<tr><td>{markup.link(first, f'<code>{first.name}</code>')}<code>({html.escape(arguments)})</code></td>"
                f"<td>{html.escape(_first_sentence(comment))}</td><td>{', '.join(forms)}</td>"
                f"<td>{'yes' if _has_gradient(first, comment) else 'no'}</td><td>{html.escape(policy)}</td></tr>")
        if shown:
            rows += len(shown)
            out.append(f"## {header.removeprefix('firn/')}\n")
            out.append(_raw("<table class='docutils'><thead><tr><th>operation</th><th>what it computes</th><th>forms</th>"
                            "<th>gradient</th><th>under autocast</th></tr>"
                            f"</thead><tbody>{''.join(shown)}</tbody></table>"))
    return "\n".join(out), rows


# Values that functions take, and no options: where a stream or a set is, what a tensor is called.
_VALUES = {"DrawContext", "LoaderPosition", "NamedTensor", "RandomKey", "Stream"}


def option_structs(library):
    """Structs of options: called so, or data alone with a default each that a function or another of them takes."""
    found, more = {}, []
    for name in library.names:
        data = [m for m in name.members if m.kind == "variable" and m.xml.get("static") != "yes"]
        if name.kind != "struct" or not data:
            continue
        plain = all(m.initializer for m in data) and not any(m.name == name.name for m in name.members)
        if name.name.endswith("Options") or (plain and name.name not in _VALUES and undocumented.takers(name, library)):
            found[name.id] = (name, data)
        elif plain and name.name not in _VALUES:
            more.append((name, data))
    members = {ref.get("refid") for _, data in found.values() for m in data for ref in m.xml.iter("ref")}
    return [*found.values(), *(both for both in more if both[0].id in members)]


def options(library, markup):
    """The page of options: a table for each struct."""
    out = ["# Options\n",
           "Every struct of options with the default of each member, made from the headers. Members are named in braces: "
           "`data::Loader loader(set, {.batch = 64, .shuffle = true})`. The order of the members is that of the table.\n"]
    structs = option_structs(library)
    rows = 0
    for name, data in sorted(structs, key=lambda s: (s[0].scope, s[0].name)):
        out.append(f"## {name.qualified.removeprefix('firn::')}\n")
        lines = []
        for m in data:
            default = markup.linked(m.xml.find("initializer"))
            default = re.sub(r"^=\s*", "", default) or "(required)"
            kind = markup.linked(m.xml.find("type"))
            lines.append(f"<tr><td>{markup.link(m, f'<code>{m.name}</code>')}</td><td><code>{kind}</code></td>"
                         f"<td><code>{default}</code></td><td>{markup.plain(m)}</td></tr>")
        rows += len(lines)
        out.append(_raw(f"{markup.description(name)}<p>{markup.link(name, name.name)} of <a href='{page_of(name.file)}.html'>"
                        f"{name.file}</a></p><table class='docutils'><thead><tr><th>option</th><th>type</th><th>default</th>"
                        f"<th>what it does, unit</th></tr></thead><tbody>{''.join(lines)}</tbody></table>"))
    return "\n".join(out), len(structs), rows
