#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
# run.sh: what heddle computes on a GPU, and how near its prices are, as the page docs/results/gpu.md.
#
#   bench/gpu/run.sh                                on the first GPU of this machine
#   bench/gpu/run.sh --device cpu --out page.md     a dry run of the same code on the CPU, with small sizes
#
# With two or more GPUs it measures what they do together too; a dry run does so with two threads.
# Options: --seeds N random programs; --include FOLDER, which may be given several times, where headers are; --samples
# FILE for what operators took, as heddle fit reads it; --programs FOLDER keeps what is built and does not build it again.
# Needs a C++20 compiler (CXX), a Python with torch (PYTHON), headers of Boost, Eigen 3, nlohmann/json and zlib, and
# what LDFLAGS may say of where zlib is; for several GPUs headers of CUDA, which the wheels of torch bring, and NCCL.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
device=cuda out= includes= seeds= samples= programs=
while [ $# -gt 0 ]; do
    case $1 in
    --device) device=$2 && shift 2 ;;
    --include) includes="$includes -isystem $2" && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    --seeds) seeds=$2 && shift 2 ;;
    --samples) samples=$2 && shift 2 ;;
    --programs) programs=$2 && shift 2 ;;
    *)
        echo "run.sh: unknown option $1" >&2
        exit 2
        ;;
    esac
done
case $device in
cpu)
    models="vit_2" batch=2 seeds=${seeds:-20}
    [ "$out" ] || {
        echo "run.sh: a dry run writes to the page that --out names, not to that of GPUs" >&2
        exit 2
    }
    ;;
cuda)
    models="gpt2_12 vit_12 bert_12" batch=32 seeds=${seeds:-100} out=${out:-$root/docs/results/gpu.md}
    command -v nvidia-smi >/dev/null || {
        echo "run.sh: there is no nvidia-smi, so no GPU; --device cpu is a dry run" >&2
        exit 1
    }
    ;;
*)
    echo "run.sh: --device is $device, expected cuda or cpu" >&2
    exit 2
    ;;
esac

python=${PYTHON:-python3}
torch=$($python -c 'import torch; print(torch.__path__[0])' 2>/dev/null) || {
    echo "run.sh: $python has no torch; PYTHON=... names another" >&2
    exit 1
}
version=$($python -c 'import torch; print(torch.__version__)')
toolkits=$($python -c '
import torch
nccl = torch.cuda.nccl.version() if torch.cuda.is_available() else None
print(f"CUDA: {torch.version.cuda}; NCCL: {nccl}")')
if [ "$device" = cuda ] && ! $python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    echo "run.sh: the torch of $python has no CUDA that works here" >&2
    exit 1
fi
libraries="-ltorch -ltorch_cpu -lc10"
if [ -d "$torch/include/ATen" ]; then
    flags="-isystem $torch/include -isystem $torch/include/torch/csrc/api/include"
    flags="$flags -D_GLIBCXX_USE_CXX11_ABI=$($python -c 'import torch; print(int(torch.compiled_with_cxx11_abi()))')"
    libraries="-L$torch/lib -Wl,-rpath,$torch/lib $libraries"
else # the system's own
    flags="-isystem /usr/include/torch/csrc/api/include"
fi
if [ "$device" = cuda ]; then
    flags="$flags -DHEDDLE_LIBTORCH_HAS_CUDA"
    libraries="-Wl,--no-as-needed $libraries -ltorch_cuda -lc10_cuda"
fi
export TORCH_CPP_LOG_LEVEL=ERROR # libtorch warns of what random programs do
[ -d /usr/include/eigen3 ] && flags="$flags -isystem /usr/include/eigen3"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
programs=${programs:-$work}
mkdir -p "$programs"
gpus=0
[ "$device" = cpu ] || gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
# The wheels of torch have headers and libraries of CUDA and NCCL beside it.
cuda=
for library in "$torch"/../nvidia/*/lib/libnccl.so.* "$torch"/../nvidia/*/lib/libcudart.so.*; do
    [ -f "$library" ] || continue
    folder=$(dirname "$(dirname "$library")")
    cuda="$cuda -isystem $folder/include $library -Wl,-rpath,$folder/lib"
done
# Other torches use those of the system.
toolkit=${CUDA_HOME:-/usr/local/cuda}
[ "$cuda" ] || cuda="-isystem $toolkit/include -L$toolkit/lib64 -Wl,-rpath,$toolkit/lib64 -lnccl -lcudart"
compile() { # SOURCE FLAG...
    source=$1 && shift
    # shellcheck disable=SC2086
    ${CXX:-g++} -std=c++20 -O2 -DNDEBUG -ffp-contract=off -DHEDDLE_COMPILED -I"$root/include" \
        -I"$root/adapters/json/include" -I"$root/adapters/libtorch/include" -I"$root/adapters/nccl/include" \
        -I"$root/test" $includes $flags "$@" -c "$root/$source.cpp" -o "$work/$(basename "$source").o"
}
build() { # NAME FLAG...
    program=$1 && shift
    [ ! -x "$programs/$program" ] || return 0
    # The library and the program, at once: the one is compiled for the first program, and there for the others.
    others=
    if [ ! -f "$work/compiled.o" ]; then
        compile adapters/compiled/compiled -DHEDDLE_COMPILING & others="$others $!"
        compile adapters/compiled/kernels & others="$others $!"
    fi
    compile "bench/gpu/$program" "$@"
    for other in $others; do wait "$other"; done
    # shellcheck disable=SC2086
    ${CXX:-g++} "$work/$program.o" "$work/compiled.o" "$work/kernels.o" -o "$programs/$program" ${LDFLAGS:-} "$@" \
        $libraries -lz -pthread
}
several=$gpus
[ "$device" = cuda ] || several=2
build one_gpu
if [ "$device" = cpu ]; then
    build several_gpus
elif [ "$several" -ge 2 ]; then
    # shellcheck disable=SC2086
    build several_gpus -DHEDDLE_HAS_CUDA $cuda
fi

for m in $models; do set -- "$@" "$root/examples/models/$m.json.gz"; done
status=0
"$programs/one_gpu" "$device" "$seeds" "$batch" "${samples:-$work/samples.csv}" "$@" >"$work/one.md" || status=$?
[ $status -le 1 ] || exit $status # else the page says what is wrong
if [ "$several" -ge 2 ]; then
    of_several=0
    "$programs/several_gpus" "$device" "$several" $((seeds / 5)) $((2 * batch)) "$@" >"$work/several.md" || of_several=$?
    [ $of_several -le 1 ] || exit $of_several
    [ $of_several -eq 0 ] || status=1
fi

{
    echo "# On GPUs"
    echo
    if [ "$device" = cpu ]; then
        echo "**A dry run on a CPU, with small sizes: no GPU was there. The numbers show that \`bench/gpu/run.sh\` works, and say nothing of a GPU.**"
        echo
        name=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
        driver=none
    else
        name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
        driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)
    fi
    echo "Written by \`bench/gpu/run.sh\`. Device: $name; GPUs: $gpus; driver: $driver; torch: $version; $toolkits; compiler: $(${CXX:-g++} --version | head -1); heddle: $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)."
    cat "$work/one.md"
    echo
    echo "## Several GPUs"
    echo
    if [ "$several" -ge 2 ]; then
        cat "$work/several.md"
    else
        for part in "Arithmetic through NCCL" "NCCL's collectives" "Plans on several GPUs" "Overlap of micro-batches that take turns" "Interference"; do
            echo "- $part: not measured, as there are fewer than two GPUs."
        done
    fi
} >"$work/page.md"
mv "$work/page.md" "$out"
echo "$out"
exit $status
