#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Run the programs that compare predictions with measurements, and write what they print as a page.

    bench/truth/page.py build/release/bench --data DIR --out docs/results/truth.md

DIR has one folder per data set; sets that are not there are left out and named.
"""

import argparse
import os
import subprocess
from pathlib import Path

# Program and folder, title.
SETS = (
    ("vtrain", "vTrain: Megatron on A100, one node and several"),
    ("amp", "AMP: DeepSpeed on V100 and T4 together"),
    ("sailor", "Sailor: Megatron-DeepSpeed on GH200, and on mixed GPUs with links of 1 Gbit/s"),
    ("ultrascale", "ultrascale: nanotron on 8 to 128 H100"),
    ("mist", "mist: Aceso's plans on L4"),
    ("megatron_bridge", "Megatron-Bridge: published steps on H100"),
)

EXPLANATION = """\
# Predictions beside measurements

Iterations that others measured and published, on machines that the library has not seen, and what it predicts for them from layer profiles or shapes. Errors are relative to the measured seconds, and
on rows that nothing was fitted on; which part of the rows was fitted on is said, and 0 means that all of it was known beforehand. What is fitted is drawn to what is known of it, and said to be open
where the rows do not tell. Failures stand here like successes. The page is made by

```sh
bench/truth/page.py build/release/bench --data DIR --out docs/results/truth.md
```

where `DIR` has a folder for each set; each part is what `build/release/bench/truth_SET --data DIR/SET [--fit PART] [--csv FILE]` prints, which with `--csv` also writes a row for each prediction.
"""

# As many rows as 5 % of the whole set are, of which this is a part: half of it.
MORE_ROWS = {"vtrain": ("0.5", "one node", "several nodes")}

HIDUP = """
## HiDup: kernels and iterations traced on 4 V100

By `bench/hidup_traces`. Rates, collectives and how much each slows the other are fitted to kernels and calls of the same traces, nothing to iterations.

```text
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    page = EXPLANATION
    for name, title in SETS:
        page += f"\n## {title}\n\n"
        if not (options.data / name).is_dir():
            page += "Not compared: the data are not there.\n"
            continue
        command = [options.programs / f"truth_{name}", "--data", options.data / name]
        run = subprocess.run(command, capture_output=True, text=True)
        page += run.stdout if run.returncode == 0 else f"Failed: {run.stderr}"
        if name in MORE_ROWS:
            part, *rows = MORE_ROWS[name]
            run = subprocess.run([*command, "--fit", part], capture_output=True, text=True)
            wanted = ("| rows ", "|---", *(f"| {r} |" for r in rows))
            page += f"\nFitted on as many rows as 5 % of the whole set are, which is {part} of these:\n\n"
            page += "".join(f"{line}\n" for line in run.stdout.splitlines() if line.startswith(wanted))
    page += HIDUP
    run = subprocess.run([options.programs / "hidup_traces"], capture_output=True, text=True,
                         env={**os.environ, "HEDDLE_REFERENCE_DATA": str(options.data)})
    page += (run.stdout if run.returncode == 0 else f"Failed: {run.stderr}") + "```\n"
    options.out.write_text(page)


if __name__ == "__main__":
    main()
