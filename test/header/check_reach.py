"""Every header includes what it uses, by way of others: each name that it uses is declared in a file that its includes reach. And two units of
a program may include it: what it defines is a template or inline.

Usage: check_reach.py FOLDER... [-- COMPILER-ARGUMENT...]: the headers of these folders, read as one unit. Exits with 77 where there are no
Python bindings of libclang.

A header's declarations reach what stands before its definitions alone, since whoever links heddle::compiled reads no more.
What templates call by argument-dependent lookup is not seen, nor that a type has to be complete where no member is named.
"""
import pathlib
import sys

try:
    from clang import cindex
except ImportError:
    print("headers are not checked: the Python bindings of libclang are missing")
    sys.exit(77)
from clang.cindex import CursorKind, LinkageKind, TranslationUnit, conf

folders, arguments = sys.argv[1:], []
if "--" in folders:
    split = folders.index("--")
    folders, arguments = folders[:split], folders[split + 1 :]
folders = [pathlib.Path(folder).resolve() for folder in folders]
headers = [path.relative_to(folder) for folder in folders for path in sorted(folder.rglob("*.hpp"))]
ours = tuple(f"{folder}/" for folder in folders)

unit = cindex.Index.create().parse(
    "all.cpp",
    args=["-std=c++20", *(f"-I{folder}" for folder in folders), *arguments],
    unsaved_files=[("all.cpp", "".join(f"#include <{header}>\n" for header in headers))],
    options=TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD,
)
errors = [str(diagnostic) for diagnostic in unit.diagnostics if diagnostic.severity >= cindex.Diagnostic.Error]
if errors:
    sys.exit("\n".join(errors))


def definitions_begin(path):
    """The line where a header's definitions begin; one after its last where it has none."""
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return next((n for n, line in enumerate(lines, 1) if line.startswith("#if HEDDLE_DEFINITIONS")), len(lines) + 1)


begins = {}  # of a header, where its definitions do
direct = {}  # of a file, those that its declarations include, and those that its definitions do
declared = {}  # of what headers declare, all files that do
everything = list(unit.cursor.get_children())
for cursor in everything:
    file = cursor.location.file
    if file and file.name.startswith(ours):
        begins.setdefault(file.name, definitions_begin(file.name))
    if cursor.kind is CursorKind.INCLUSION_DIRECTIVE:
        included = conf.lib.clang_getIncludedFile(cursor)
        part = cursor.location.line > begins.get(file.name, sys.maxsize)
        direct.setdefault(file.name, (set(), set()))[part].add(included.name)


def defined_once(cursor):
    """Whether a program that has this definition in two units is ill-formed."""
    parent = cursor.semantic_parent
    while parent and parent.kind.is_declaration():
        if parent.kind in (CursorKind.CLASS_TEMPLATE, CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION, CursorKind.FUNCTION_TEMPLATE):
            return False
        parent = parent.semantic_parent
    if not cursor.is_definition() or cursor.linkage is not LinkageKind.EXTERNAL:
        return False
    if cursor.kind is CursorKind.VAR_DECL:
        return not {"inline", "constexpr"} & {token.spelling for token in cursor.get_tokens()}
    functions = (CursorKind.FUNCTION_DECL, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR, CursorKind.DESTRUCTOR, CursorKind.CONVERSION_FUNCTION)
    return cursor.kind in functions and not conf.lib.clang_Cursor_isFunctionInlined(cursor)


repeated = []
ours_within = [c for c in everything if c.location.file and c.location.file.name in begins]
for cursor in ours_within:
    for declaration in cursor.walk_preorder():
        if declaration.kind.is_declaration() and declaration.location.file:
            declared.setdefault(declaration.get_usr(), set()).add(declaration.location.file.name)
            if defined_once(declaration):
                repeated.append(f"{declaration.location.file.name}:{declaration.location.line}: {declaration.spelling} is neither a template nor inline")

reached = {}


def reach(file):
    """What a file's declarations include, by way of others too, and the file itself."""
    if file not in reached:
        found, rest = {file}, [file]
        while rest:
            for next_file in direct.get(rest.pop(), (set(), set()))[0] - found:
                found.add(next_file)
                rest.append(next_file)
        reached[file] = found
    return reached[file]


within = {}


def may_use(file, line):
    """What the part of a header that has this line reaches."""
    part = line > begins[file]
    if (file, part) not in within:
        within[file, part] = reach(file).union(*map(reach, direct.get(file, (set(), set()))[1] if part else ()))
    return within[file, part]


def files_of(declaration):
    known = (declaration, declaration.get_definition())
    return declared.get(declaration.get_usr(), set()) | {one.location.file.name for one in known if one and one.location.file}


def declaring(use):
    """The files that declare what a name means, or what it may mean; none where no include says so: for namespaces, which any file opens,
    and for operators of types that a template does not know yet."""
    if use.kind is CursorKind.OVERLOADED_DECL_REF:
        if use.spelling.startswith("operator"):
            return set()
        return set().union(*(files_of(conf.lib.clang_getOverloadedDecl(use, n)) for n in range(conf.lib.clang_getNumOverloadedDecls(use))))
    meant = use.referenced
    if not meant or use.kind is CursorKind.NAMESPACE_REF or meant.kind in (CursorKind.NAMESPACE, CursorKind.NAMESPACE_ALIAS):
        return set()
    return files_of(meant)


missing = {}
for cursor in ours_within:
    for use in cursor.walk_preorder():
        location = use.location
        if not (use.kind.is_reference() or use.kind.is_expression() or use.kind is CursorKind.MACRO_INSTANTIATION) or not location.file:
            continue
        files = declaring(use)
        if files and location.file.name in begins and not files & may_use(location.file.name, location.line):
            missing.setdefault((location.file.name, min(files)), (location.line, use.spelling))

for (file, declaration), (line, name) in sorted(missing.items()):
    print(f"{file}:{line}: {name} is declared in {declaration}, which this part of the header does not include")
for problem in repeated:
    print(problem)
sys.exit(bool(missing or repeated))
