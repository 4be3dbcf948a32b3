#!/usr/bin/env python3
"""Checks the code blocks of Markdown pages. Run from the repository root, with paths relative to it.

docs.py programs FOLDER PAGE...
    Each ```cpp block is a whole program and is written to FOLDER as a .cpp; a ```text block that directly follows is
    what it prints, and is written beside it as a .out. (A fragment is fenced otherwise, as ```cpp fragment.)

docs.py console SCRATCH PAGE
    Each ```console block is a transcript: `$ command` lines, which here-documents (<< 'END') and backslashes continue,
    each followed by what it prints on either stream. A line
    `...` stands for any lines. A command must succeed, unless the next one is `echo $?`. The page runs in SCRATCH, a
    folder that looks like the repository root, so that files it writes stay out of the tree.

docs.py prose PAGE...
    No paragraph breaks off: what follows one that ends in a comma goes on with it, so it is no heading, no item and
    nothing that begins with a capitalised word.
"""
import re
import subprocess
import sys
from pathlib import Path
from shutil import rmtree

STATUS = "\x01status "  # cannot stand in a page


def blocks(page):
    """The fenced blocks of a page: (language, line of the first content line, lines, follows the block before)."""
    language = None
    adjacent = False
    for number, line in enumerate(Path(page).read_text(encoding="utf-8").splitlines(), 1):
        if language is None and line.startswith("```"):
            language, first, lines = line[3:].strip(), number + 1, []
        elif language is not None and line == "```":
            yield language, first, lines, adjacent
            language, adjacent = None, True
        elif language is not None:
            lines.append(line)
        elif line.strip():
            adjacent = False
    if language is not None:
        sys.exit(f"{page}:{first - 1}: this block is not closed")


def write_programs(folder, pages):
    files = {}
    for page in pages:
        stem = re.sub(r"\W", "_", page.removesuffix(".md"))
        program = None
        for language, first, lines, adjacent in blocks(page):
            text = "".join(line + "\n" for line in lines)
            if language == "text" and adjacent and program:
                files[f"{program}.out"] = text
            program = f"{stem}_{first}" if language == "cpp" else None
            if program:
                files[f"{program}.cpp"] = f'#line {first} "{page}"\n{text}'
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    for name, text in files.items():  # an unchanged file keeps its time
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def commands(page, first, lines):
    """The commands of a transcript: (line number, command, expected lines)."""
    found = []
    continued = False
    ending = None  # of a here-document
    for number, line in enumerate(lines, first):
        if continued or ending:
            found[-1][1] += "\n" + line
            ending = None if line == ending else ending
        elif line.startswith("$ "):
            found.append([number, line[2:], []])
        elif found:
            found[-1][2].append(line.rstrip())
        else:
            sys.exit(f"{page}:{number}: a transcript starts with '$ command'")
        continued = line.endswith("\\") and (continued or line.startswith("$ "))
        if line.startswith("$ ") and (here := re.search(r"<< '(\w+)'$", line)):
            ending = here[1]
    return found


def matches(expected, actual):
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in expected)
    return re.fullmatch(pattern, "".join(line + "\n" for line in actual)) is not None


def run_transcript(page, scratch, transcript):
    """Runs the commands in one shell; returns whether each printed what the page says."""
    script = "".join(f"{command}\nstatus=$?; printf '\\n{STATUS}%s\\n' $status; (exit $status)\n"
                     for _, command, _ in transcript)
    output = subprocess.run(["bash", "-c", script], cwd=scratch, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout
    parts = re.split(rf"\n{STATUS}(\d+)\n", output)
    following = [command for _, command, _ in transcript[1:]] + [None]
    good = True
    for i, (number, command, expected) in enumerate(transcript):
        actual = [line.rstrip() for line in parts[2 * i].rstrip("\n").splitlines()]
        status = parts[2 * i + 1] if 2 * i + 1 < len(parts) else "unknown: the shell ended"
        while expected and not expected[-1]:
            expected.pop()
        if status != "0" and following[i] != "echo $?":
            problem = f"exit status {status}"
        elif not matches(expected, actual):
            problem = "prints something else"
        else:
            continue
        good = False
        print(f"{page}:{number}: {problem}: {command}\n--- expected", *expected, "--- actual", *actual, "", sep="\n")
        if 2 * i + 1 >= len(parts):
            break
    return good


def run_console(scratch, page):
    rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for entry in Path.cwd().glob("[!.]*"):
        (scratch / entry.name).symlink_to(entry)
    results = [run_transcript(page, scratch, commands(page, first, lines))
               for language, first, lines, _ in blocks(page) if language == "console"]
    return all(results)


def broken_off(page):
    """The paragraphs of a page that break off."""
    text = Path(page).read_text(encoding="utf-8")
    pieces = re.split(r"\n(?:[ \t]*\n)+", re.sub(r"^```.*?^```", "```", text, flags=re.MULTILINE | re.DOTALL).strip())
    return [f"{page}: this paragraph breaks off: {piece[-60:]}" for piece, following in zip(pieces, pieces[1:] + ["# "])
            if piece.endswith(",") and re.match(r"[A-Z][a-z]* |[#*-] |\d+\. ", following)]


def main():
    match sys.argv[1:]:
        case ["programs", folder, *pages]:
            write_programs(Path(folder), pages)
        case ["console", scratch, page]:
            sys.exit(not run_console(Path(scratch), page))
        case ["prose", *pages]:
            sys.exit("\n".join(sentence for page in pages for sentence in broken_off(page)) or 0)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
