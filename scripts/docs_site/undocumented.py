"""What documents a name. A comment of its own does, or one of these rules:

  overloads     one of its overloads has a comment
  group         functions that follow each other line by line share the comment above the first if it names them or
                they take the same; what is declared in one line shares that line's comment, the values of an enum
                that stand in one line the enum's
  special       constructors make what the class says, from parameters whose names it uses; copies, moves, destructors
                and assignment likewise
  standard      begin, end, size, empty, comparison, dereference and the types of iterators mean what they mean in the
                standard library
  inherited     an override does what the function does that it overrides; constructors of a base likewise
  member form   Tensor::f does what f does; f_ does what f does, in place
  options       a struct XOptions has the options of X or of the functions that take it, and a type Options those of
                its class; `dtype` and `device` there are those of what is made
"""
import dataclasses
import re

from .model import COMPOUNDS, Name

_STANDARD = {"begin", "end", "size", "empty", "operator==", "operator!=", "operator*", "operator->", "operator++",
             "iterator_concept", "iterator_category", "value_type", "difference_type", "operator bool"}
_MADE = {"dtype": "dtype of what is made", "device": "device of what is made"}


@dataclasses.dataclass
class Comment:
    """Where the documentation of a name comes from."""
    source: Name = None  # the declaration whose comment holds
    rule: str = ""  # "own", or a rule
    text: str = ""  # of rules that make a sentence


def _is_special(name, library):
    """Constructing, copying, moving, destroying."""
    owner = re.sub(r"<.*", "", name.scope).rpartition("::")[2]
    if name.name.startswith("~") or name.arguments.endswith("=default"):
        return True
    if name.name == "operator=":
        return bool(re.match(rf"\((const )?{re.escape(owner)}\b", name.arguments))
    return name.name == owner and any(c.has_comment for c in library.by_qualified.get(name.scope, []))


def is_copy(name):
    """Copying, moving or destroying, without a comment."""
    owner = re.sub(r"<.*", "", name.scope).rpartition("::")[2]
    itself = re.match(rf"\((const )?{re.escape(owner)}\b(<[^>]*>)? ?&", name.arguments)
    return not name.has_comment and (name.name.startswith("~") or name.name in (owner, "operator=") and bool(itself))


def _is_of_base(name, library):
    """`using Base::Base;`: Doxygen lists the constructors in both."""
    definition = re.sub(r"<[^<>]*>", "", name.xml.findtext("definition") or "").replace(" ", "")
    owner = definition.rpartition("::")[0]
    return owner != name.scope and owner in library.bases


def _is_one_line(enum, library):
    lines = library.headers[enum.file].split("\n")
    rest = "\n".join(lines[enum.line - 1:]).partition("{")[2].partition("}")[0].strip()
    return "\n" not in rest or not any(value.has_comment for value in enum.members)


def takers(name, library):
    """What takes a struct of options: functions by name, classes by their constructors."""
    found = []
    for other in library.names:
        if other.kind == "function" and other.scope != name.qualified:
            for parameter in other.xml.iter("param"):
                if any(ref.get("refid") == name.id for ref in parameter.iter("ref")):
                    last = other.scope.rpartition("::")[2]
                    label = other.scope if other.name == last else other.qualified
                    if label not in found:
                        found.append(label)
    return found


def _from_options(name, library):
    if name.kind == "struct" and name.name.endswith("Options"):
        owner = name.qualified[:-len("Options")].removesuffix("::")
        users = [owner] if owner in library.by_qualified else takers(name, library)
        derived = [c for c, bases in library.bases.items() if any(name.name in b for b in bases)]
        if users or derived:
            names = ", ".join(u.removeprefix("firn::") for u in (users or derived))
            return f"Options of {names}."
    if name.kind == "typedef" and name.name == "Options":
        return f"The options of {name.scope.rpartition('::')[2]}."
    if name.kind == "variable" and name.name in _MADE and name.scope.endswith("Options"):
        return _MADE[name.name]
    return ""


def _of_operation(name, library, seen):
    plain = name.name.rstrip("_")
    if name.scope == "firn::Tensor" or (name.scope == "firn" and plain != name.name):
        for candidate in (f"firn::{name.name}", f"firn::{plain}"):
            for other in library.by_qualified.get(candidate, []):
                if other.scope == "firn" and other.qualified != name.qualified and other not in seen:
                    found = explain(other, library, (*seen, name))
                    if found:
                        return Comment(found.source, "member form")
    return None


def explain(name, library, seen=()):
    """The Comment of a name, or None."""
    if name.has_comment:
        return Comment(name, "own")
    for other in library.by_qualified.get(name.qualified, []):
        if other.has_comment:
            return Comment(other, "overloads")
    found = _of_operation(name, library, seen) if name.kind == "function" else None
    if found:
        return found
    if name.group is not None and name.group.has_comment:
        return Comment(name.group, "group")
    if name.kind == "value":
        enum = library.by_qualified[name.scope][0]
        return Comment(enum, "group") if enum.has_comment and _is_one_line(enum, library) else None
    text = _from_options(name, library)
    if text:
        return Comment(None, "options", text)
    if name.kind in ("function", "typedef") and name.name in _STANDARD:
        return Comment(None, "standard")
    if name.kind != "function":
        return None
    if _is_special(name, library):
        return Comment(None, "special")
    overridden = name.xml.find("reimplements")
    if overridden is not None:
        base = library.by_id.get(overridden.get("refid"))
        return (base and explain(base, library)) or Comment(None, "inherited")
    if _is_of_base(name, library):
        return Comment(None, "inherited")
    return None


def missing(library):
    """(file, line, kind, name) of each name that nothing documents; overloads count once."""
    documented, found = set(), {}
    for name in library.names:
        if name.kind == "union":
            continue
        for n in [name, *(m for m in name.members if m.kind == "value")]:
            if explain(n, library):
                documented.add(n.qualified)
            else:
                found.setdefault(n.qualified, (n.file, n.line, n.kind, n.qualified))
    return sorted(v for k, v in found.items() if k not in documented)
