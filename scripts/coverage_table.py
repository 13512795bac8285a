"""Prints covered lines per crate from two lcov files: after the unit tests, and after all tests.

Usage: coverage_table.py UNIT.info ALL.info GOAL [CRATE…]. Exits with 1 if the libraries together are below GOAL.
Lines of tests are left out: they would count as covered and flatter the figure.
"""

import os
import re
import sys

# The binary is measured too; testkit, bench and tidy are not part of the product.
BINARY = "cli"
NOT_MEASURED = {"testkit"}


def test_lines(path):
    """The lines of `#[cfg(test)]` modules and items, by indentation."""
    found, lines, index = set(), open(path, encoding="utf-8").read().splitlines(), 0
    while index < len(lines):
        indent = re.match(r"( *)#\[cfg\((?:test\)|all\(test)", lines[index])
        if indent:
            end = index + 1
            while end < len(lines) and not re.match(indent[1] + r"(?:\}|[^ #/].*;$)", lines[end]):
                end += 1
            found.update(range(index + 1, end + 2))
            index = end
        index += 1
    return found


def test_modules(root):
    """Files that only `#[cfg(test)] mod name;` names."""
    found = set()
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            if not name.endswith(".rs"):
                continue
            is_root = name in ("lib.rs", "main.rs", "mod.rs")
            children = directory if is_root else path[: -len(".rs")]
            text = open(path, encoding="utf-8").read()
            for module in re.findall(r"#\[cfg\((?:test|all\(test[^\n]*)\)\]\n\s*(?:pub(?:\([a-z]+\))? )?mod (\w+);", text):
                found.add(os.path.join(children, module))
    return found


def read(path, tests):
    """Line counts by file: {file: {line: count}}."""
    files, current = {}, None
    for line in open(path, encoding="utf-8"):
        if line.startswith("SF:"):
            name = os.path.relpath(line[3:].strip())
            match = re.match(r"crates/(\w+)/src/", name)
            is_measured = match and match[1] not in NOT_MEASURED
            is_test = any(name.startswith((module + ".rs", module + "/")) for module in tests)
            current = files.setdefault(name, {}) if is_measured and not is_test else None
        elif line.startswith("DA:") and current is not None:
            number, count = line[3:].split(",")[:2]
            current[int(number)] = max(current.get(int(number), 0), int(count))
    for name, counts in files.items():
        for number in test_lines(name):
            counts.pop(number, None)
    return files


def by_crate(files):
    sums = {}
    for name, counts in files.items():
        covered, lines = sums.setdefault(name.split("/")[1], [0, 0])
        sums[name.split("/")[1]] = [covered + sum(1 for count in counts.values() if count), lines + len(counts)]
    return sums


def percent(covered, lines):
    return 100 * covered / lines if lines else 0.0


def main():
    unit_path, all_path, goal, *crates = sys.argv[1:]
    tests = test_modules("crates")
    unit, every = (by_crate(read(path, tests)) for path in (unit_path, all_path))
    names = sorted(crates or every)
    print(f"{'crate':<12} {'lines':>7} {'unit tests':>11} {'all tests':>11}")
    total = [0, 0, 0]
    for name in names:
        (covered_by_units, _), (covered, lines) = unit.get(name, [0, 0]), every.get(name, [0, 0])
        note = "  (binary, not in the total)" if name == BINARY else ""
        print(f"{name:<12} {lines:>7} {percent(covered_by_units, lines):>9.1f} % {percent(covered, lines):>9.1f} %{note}")
        if name != BINARY:
            total = [total[0] + covered_by_units, total[1] + covered, total[2] + lines]
    units, covered, lines = total
    print(f"{'libraries':<12} {lines:>7} {percent(units, lines):>9.1f} % {percent(covered, lines):>9.1f} %")
    print(f"goal: {goal} % of library lines")
    sys.exit(percent(covered, lines) < float(goal))


main()
