"""Whether an object file is older than what it was compiled from: its figures would be those of other code."""
import pathlib
import re
import shutil
import subprocess


def _noted_by_ninja(build, objects):
    """{object: files} of ninja's log of dependencies; empty if the build is not ninja's."""
    ninja = shutil.which("ninja")
    if not ninja or not (build / "build.ninja").is_file():
        return {}
    names = {o.relative_to(build).as_posix(): o for o in objects}
    done = subprocess.run([ninja, "-C", str(build), "-t", "deps", *names], capture_output=True, text=True, check=False)
    found, current = {}, None
    for line in done.stdout.splitlines():
        if line.startswith(" "):
            if current is not None:
                current.append(build / line.strip())
        else:
            current = found.setdefault(names.get(line.split(": ")[0]), [])
    return found


def _noted_by_make(made):
    """The files of the object's .d file, which make reads; empty if there is none."""
    note = made.with_name(made.name + ".d")
    if not note.is_file():
        return []
    words = re.split(r"(?<!\\)\s+", note.read_text().replace("\\\n", " ").split(": ", 1)[-1])
    return [pathlib.Path(w.replace("\\ ", " ")) for w in words if w]


def outdated(build, files):
    """(name, newer file) for each (name, object, source) that has to be compiled again."""
    by_ninja = _noted_by_ninja(build, [made for _, made, _ in files])
    times = {}

    def changed(path):
        if path not in times:
            times[path] = path.stat().st_mtime_ns if path.exists() else 0
        return times[path]

    for name, made, source in files:
        newest = max([source, *by_ninja.get(made, _noted_by_make(made))], key=changed)
        if changed(newest) > changed(made):
            yield name, newest
