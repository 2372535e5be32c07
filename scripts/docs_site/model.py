"""The public names of firn, as Doxygen's XML shows them."""
import dataclasses
import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

MEMBERS = {"function", "variable", "typedef", "enum", "friend", "define"}
COMPOUNDS = {"class", "struct", "union", "concept"}


class BadInput(Exception):
    pass


def flat(element):
    """The text of an XML element, spaces joined."""
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip() if element is not None else ""


@dataclasses.dataclass(eq=False)
class Name:
    """A declaration: several of one name are overloads."""
    kind: str  # of MEMBERS or COMPOUNDS, or "value" of an enum
    qualified: str  # "firn::optim::AdamW"
    scope: str  # "firn::optim"
    id: str
    file: str  # below include/: "firn/optim/rules/adam.h"
    line: int
    xml: ElementTree.Element
    protected: bool = False
    group: "Name" = None  # the declaration above whose comment holds for this one too
    members: list = dataclasses.field(default_factory=list)  # of a class or an enum, in the order of the header

    @property
    def name(self):
        return self.qualified[len(self.scope) + 2:] if self.scope else self.qualified

    @property
    def brief(self):
        return self.xml.find("briefdescription")

    @property
    def detail(self):
        return self.xml.find("detaileddescription")

    @property
    def has_comment(self):
        return bool(flat(self.brief) or flat(self.detail))

    @property
    def text(self):
        return f"{flat(self.brief)} {flat(self.detail)}".strip()

    @property
    def initializer(self):
        return re.sub(r"^=\s*", "", flat(self.xml.find("initializer")))

    @property
    def type(self):
        return flat(self.xml.find("type"))

    @property
    def arguments(self):
        return flat(self.xml.find("argsstring"))


@dataclasses.dataclass
class Library:
    names: list  # all declarations, in the order of files and lines
    by_qualified: dict  # name -> declarations
    by_id: dict
    bases: dict  # class -> names of its bases, without template arguments
    headers: dict  # "firn/tensor.h" -> its text


def run_doxygen(root, out):
    """Writes XML of the public headers to out/xml. Returns Doxygen's warnings."""
    if shutil.which("doxygen") is None:
        raise BadInput("doxygen is missing: scripts/setup docs")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    settings = (root / "docs/site/Doxyfile").read_text(encoding="utf-8") + (
        f'\nINPUT = "{root}/include/firn"\nSTRIP_FROM_PATH = "{root}/include"\n'
        f'OUTPUT_DIRECTORY = "{out}"\nWARN_LOGFILE = "{out}/warnings.txt"\n')
    done = subprocess.run(["doxygen", "-"], input=settings, text=True, capture_output=True, check=False)
    if done.returncode:
        raise BadInput(f"doxygen ended with {done.returncode}: {done.stderr.strip()}")
    warnings = (out / "warnings.txt").read_text(encoding="utf-8")
    return list(dict.fromkeys(line.replace(f"{root}/", "") for line in warnings.splitlines() if line))


def _location(element):
    place = element.find("location")
    file, line = place.get("declfile") or place.get("file"), place.get("declline") or place.get("line")
    return file, int(line)


def _member(element, scope):
    file, line = _location(element)
    qualified = element.findtext("qualifiedname") or element.findtext("name")
    if element.get("kind") == "define":
        scope, qualified = "", element.findtext("name")
    name = Name(element.get("kind"), qualified, scope, element.get("id"), file, line, element,
                element.get("prot") == "protected")
    if name.kind == "friend":
        name.qualified = f"{scope}::{element.findtext('name')}"
    if name.kind == "enum":
        for value in element.iter("enumvalue"):
            name.members.append(Name("value", f"{qualified}::{value.findtext('name')}", qualified, value.get("id"), file,
                                     line, value))
    return name


def _is_internal(name, headers):
    """Names that a user does not meet: namespace detail, what is private or deleted, friends that are classes, and
    what follows a line `// For the library` in a class."""
    if "detail" in re.split(r"::", re.sub(r"<.*", "", name.qualified)) or name.qualified.startswith("std::"):
        return True
    if name.xml.get("prot") == "private" or name.arguments.endswith("=delete"):
        return True
    if name.kind == "friend" and not name.arguments:  # a class
        return True
    if name.kind in COMPOUNDS:
        return False
    for line in reversed(headers[name.file].split("\n")[:name.line - 1]):
        if re.match(r"\s*// (---- )?For the library\b", line):
            return True
        if re.match(r"\s*(// ----|class|struct|public:|protected:|\};)", line):
            return False
    return False


def _shape_of(name):
    """Types and defaults of a function's parameters, without their names."""
    return [(flat(p.find("type")), flat(p.find("defval"))) for p in name.xml.findall("param")], name.type


def _groups(names, headers):
    """A comment above a function holds for those that follow it line by line, if it names them or if they take the
    same. One beside several variables in a line holds for these."""
    head, before, lines = None, None, {}
    for name in names:
        if name.kind == "variable":
            lines.setdefault((name.file, name.line), []).append(name)
        if name.kind != "function":
            head = before = None
            continue
        source = headers[name.file].split("\n")
        between = source[before.line:name.line - 1] if before and before.file == name.file else [""]
        apart = any(not line.strip() or re.match(r"\s*(//|\}? *$|public:|protected:)", line) for line in between)
        if name.has_comment:
            at = name.line - 2
            while at > 0 and re.match(r"\s*template\b", source[at]):
                at -= 1
            head = name if re.match(r"\s*///", source[at]) else None
        elif head is None or apart or head.scope != name.scope:
            head = None
        elif re.search(rf"(?<!\w){re.escape(name.name)}(?!\w)", head.text) or _shape_of(name) == _shape_of(head) \
                or head.name == name.name:
            name.group = head
        before = name
    for together in lines.values():
        commented = [name for name in together if name.has_comment]
        for name in together:
            if commented and not name.has_comment:
                name.group = commented[0]


def read(out, root):
    """Names of the XML in out/xml."""
    headers = {str(p.relative_to(root / "include")): p.read_text(encoding="utf-8")
               for p in (root / "include").rglob("*.h")}
    names, bases, seen = [], {}, set()
    for path in sorted((out / "xml").glob("*.xml")):
        if path.name == "index.xml" or path.name == "Doxyfile.xml":
            continue
        for compound in ElementTree.parse(path).getroot().iter("compounddef"):
            kind, qualified = compound.get("kind"), compound.findtext("compoundname")
            if kind not in COMPOUNDS and kind not in ("namespace", "file"):
                continue
            if kind in COMPOUNDS:
                file, line = _location(compound)
                names.append(Name(kind, qualified, qualified.rpartition("::")[0], compound.get("id"), file, line, compound))
                bases[qualified] = [re.sub(r"\s*<.*", "", flat(b)) for b in compound.iter("basecompoundref")]
            for element in compound.iter("memberdef"):
                if element.get("id") in seen or element.get("kind") not in MEMBERS:
                    continue
                if kind == "file" and element.get("kind") != "define":
                    continue
                seen.add(element.get("id"))
                names.append(_member(element, qualified if kind != "file" else ""))
    names = [n for n in names if not _is_internal(n, headers)]
    public = {n.qualified for n in names}
    hidden = {q for q in bases if q not in public}
    names = [n for n in names if n.scope not in hidden]
    names.sort(key=lambda n: (n.file, n.line, n.qualified))
    _groups(names, headers)
    by_qualified, by_id = {}, {}
    for name in names:
        by_id[name.id] = name
        by_qualified.setdefault(name.qualified, []).append(name)
        for value in name.members:
            by_id[value.id] = value
            by_qualified.setdefault(value.qualified, []).append(value)
    for name in names:
        for owner in by_qualified.get(name.scope, []):
            if owner.kind in COMPOUNDS:
                owner.members.append(name)
    return Library(names, by_qualified, by_id, bases, headers)
