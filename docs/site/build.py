#!/usr/bin/env python3
"""Builds the documentation as a site of static pages: MkDocs for what is written, Doxygen for what is in the headers.

Usage: docs/site/build.py OUT [--no-reference]

Needs Debian's mkdocs, mkdocs-material and doxygen. Files and folders outside docs/ that a page links to become pages of the site. Every link inside the site is followed; a broken one, and
a warning of either tool, is an error.
"""
import argparse
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECTIONS = {
    "howto": "How to",
    "reference": "Reference",
    "explanation": "Explanation",
    "results": "Results",
}
LANGUAGES = {".hpp": "cpp", ".cpp": "cpp", ".py": "python", ".sh": "sh", ".json": "json", ".md": "markdown"}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"\A(```\w+) .*")  # after the language of a block, which MkDocs wants alone


def title_of(page: pathlib.Path) -> str:
    """The first heading of a page."""
    for line in page.read_text().splitlines():
        if line.startswith("# "):
            return line[2:].strip()
    sys.exit(f"{page}: has no heading, expected one that begins with '# '")


def outside_link(page: pathlib.Path, target: str) -> pathlib.Path | None:
    """The file or folder of the project that a page of docs/ links to, if it is not in docs/ itself."""
    if urllib.parse.urlparse(target).scheme:
        return None
    path = (page.parent / target).resolve()
    if not path.exists():
        sys.exit(f"{page.relative_to(ROOT)}: links to {target}, which does not exist")
    if path.is_relative_to(ROOT / "docs"):
        return None
    if not path.is_relative_to(ROOT):
        sys.exit(f"{page.relative_to(ROOT)}: links to {target}, which is outside the project")
    return path


def source_page(path: pathlib.Path) -> str:
    """A page that shows a file, or lists a folder, of the project."""
    name = path.relative_to(ROOT)
    if path.is_dir():
        files = sorted(f for f in path.rglob("*") if f.is_file())
        return f"# {name}/\n\n" + "\n".join(f"- `{f.relative_to(path)}`" for f in files) + "\n"
    return f"# {name}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}````\n"


def stage_pages(stage: pathlib.Path) -> None:
    """Copies docs/ into `stage`; links that leave it lead to pages under `stage`/source."""
    shutil.copytree(ROOT / "docs", stage, ignore=shutil.ignore_patterns("site", "__pycache__", "*.py"))
    shutil.copy(ROOT / "docs/site/site.css", stage)
    wanted: set[pathlib.Path] = set()

    def rewritten(page: pathlib.Path, text: str) -> str:
        def replace(match: re.Match[str]) -> str:
            path = outside_link(page, match[2])
            if path is None:
                return match[0]
            wanted.add(path)
            target = pathlib.Path("source", f"{path.relative_to(ROOT)}.md")
            return match[1] + os.path.relpath(target, page.relative_to(ROOT / "docs").parent) + match[4]

        parts = FENCE.split(text)  # fenced blocks are at odd places
        return "".join(NOTE.sub(r"\1", part) if n % 2 else LINK.sub(replace, part) for n, part in enumerate(parts))

    for page in sorted((ROOT / "docs").rglob("*.md")):
        (stage / page.relative_to(ROOT / "docs")).write_text(rewritten(page, page.read_text()))
    for path in sorted(wanted):
        file = stage / "source" / f"{path.relative_to(ROOT)}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source_page(path))


def listed(stage: pathlib.Path, folder: pathlib.Path) -> list:
    """The navigation of a folder: its index, its pages by title, then its folders."""
    pages = sorted(folder.glob("*.md"), key=lambda p: (p.name != "index.md", title_of(p).lower()))
    entries: list = [str(p.relative_to(stage)) if p.name == "index.md" else {title_of(p): str(p.relative_to(stage))} for p in pages]
    for sub in sorted(p for p in folder.iterdir() if p.is_dir() and any(p.rglob("*.md"))):
        entries.append({sub.name.capitalize(): listed(stage, sub)})
    return entries


def write_configuration(stage: pathlib.Path, out: pathlib.Path, has_reference: bool) -> pathlib.Path:
    """Writes the configuration of MkDocs: that beside this script, with the navigation."""
    first = [p for p in ("index.md", "tutorial.md") if (stage / p).exists()]
    nav: list = [{"Start" if p == "index.md" else title_of(stage / p): p} for p in first]
    nav += [{words: listed(stage, stage / folder)} for folder, words in SECTIONS.items()]
    rest = sorted(p.name for p in stage.glob("*.md") if p.name not in first)
    nav.append({"The project": [{title_of(stage / p): p} for p in rest]})
    if has_reference:
        nav.append({"Headers": "headers/index.html"})
    added = {"docs_dir": str(stage), "site_dir": str(out), "nav": nav}
    file = stage.parent / "mkdocs.yml"
    file.write_text((ROOT / "docs/site/mkdocs.yml").read_text() + "".join(f"{key}: {json.dumps(value)}\n" for key, value in added.items()))
    return file


class links(html.parser.HTMLParser):
    """Collects what a page links to, and the places in it that may be linked to."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for key, value in attributes:
            if value and (tag, key) in {("a", "href"), ("img", "src"), ("link", "href"), ("script", "src")}:
                self.targets.add(value)
            if value and key in {"id", "name"}:
                self.places.add(value)


def broken_links(site: pathlib.Path) -> list[str]:
    """Sentences on links inside the site that lead nowhere. The reference of headers is a goal, but is not read itself."""
    pages: dict[pathlib.Path, links] = {}
    for file in sorted(site.rglob("*.html")):
        parsed = links()
        parsed.feed(file.read_text(errors="replace"))
        pages[file] = parsed
    found = []
    for file, page in pages.items():
        if file.is_relative_to(site / "headers") or file.name == "404.html":
            continue
        for target in sorted(page.targets):
            url = urllib.parse.urlparse(target)
            if url.scheme or url.netloc:
                continue
            goal = (file.parent / urllib.parse.unquote(url.path)).resolve() if url.path else file
            if goal.is_dir():
                goal /= "index.html"
            place = urllib.parse.unquote(url.fragment)
            if not goal.exists() or (place and goal in pages and place not in pages[goal].places):
                found.append(f"{file.relative_to(site)}: {target} leads nowhere")
    return found


def lost_blocks(stage: pathlib.Path, site: pathlib.Path) -> list[str]:
    """Sentences on pages of docs/ of which not every fenced block is one of the site."""
    found = []
    for page in sorted(stage.rglob("*.md")):
        name = page.relative_to(stage)
        wanted, made = len(FENCE.findall(page.read_text())), (site / name.with_suffix(".html")).read_text().count("<pre")
        if name.parts[0] != "source" and made < wanted:
            found.append(f"{name}: {wanted} blocks, of which the site has {made}")
    return found


def lost_items(site: pathlib.Path) -> list[str]:
    """Sentences on items of lists that are text of a paragraph, and on backslashes of cells that are text of code."""
    found = []
    for file in sorted(site.rglob("*.html")):
        text = re.sub(r"<pre.*?</pre>", "", "" if file.is_relative_to(site / "headers") else file.read_text(), flags=re.DOTALL)
        for lost in re.findall(r"(?<=\n)(?:[-*]|\d+\.) [^\n]{0,60}", text) + re.findall(r"<code>([^<]*\\\|[^<]*)</code>", text):
            found.append(f"{file.relative_to(site)}: {lost!r} is shown as it is written")
    return found


def run(command: list[str], **more) -> None:
    """Runs a tool; fails with what it said if it fails or warns."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: ended with {done.returncode}\n{done.stdout}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="the folder of the site; what is in it is replaced")
    parser.add_argument("--no-reference", action="store_true", help="leave out the reference of headers, which takes longest")
    options = parser.parse_args()
    for tool in ["mkdocs"] + ["doxygen"] * (not options.no_reference):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is not installed; Debian has it as a package of this name")
    out = options.out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        stage = pathlib.Path(folder, "pages")
        stage_pages(stage)
        if not options.no_reference:  # first, so that MkDocs finds what the navigation names
            settings = f"{(ROOT / 'docs/site/Doxyfile').read_text()}\nOUTPUT_DIRECTORY = {folder}\nHTML_OUTPUT = headers\n"
            run(["doxygen", "-"], input=settings, cwd=ROOT)
        run(["mkdocs", "build", "--quiet", "--clean", "--config-file", str(write_configuration(stage, out, not options.no_reference))])
        if not options.no_reference:
            shutil.copytree(pathlib.Path(folder, "headers"), out / "headers", dirs_exist_ok=True)
        lost = lost_blocks(stage, out)
    if broken := lost + lost_items(out) + broken_links(out):
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
