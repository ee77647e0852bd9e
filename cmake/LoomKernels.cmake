# The compilers of GPU kernels, nvcc and clang, as LOOM_CUDA wants them. Only the compilers are used: nothing of CUDA is
# linked. clang needs no CUDA Toolkit. Sets
#   LOOM_NVCC, LOOM_CLANG                    the compilers, empty where not used
#   LOOM_NVCC_KERNELS, LOOM_CLANG_KERNELS    what their kernels are for, in words
#   LOOM_HAVE_CUDA                           whether there will be kernels
#   LOOM_IMAGES_DIR                          where
set(LOOM_CUDA_ARCHITECTURES "80;90;100" CACHE STRING
    "GPU architectures that nvcc compiles kernels for; later ones take the last one's PTX")
# The kernels need memory orders, which begin with these; drivers as of CUDA 9 know them.
set(LOOM_PTX_VERSION 60)
set(LOOM_PTX_ARCHITECTURE 70)
set(LOOM_IMAGES_DIR ${CMAKE_BINARY_DIR}/device/kernels)

set(LOOM_NVCC "")
if(LOOM_CUDA MATCHES "^(AUTO|ON|nvcc)$")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(LOOM_NVCC ${CMAKE_CUDA_COMPILER})
  endif()
endif()

set(LOOM_CLANG "")
if(LOOM_CUDA MATCHES "^(AUTO|ON|clang)$")
  find_program(LOOM_CLANGXX NAMES clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14
               DOC "clang++ 14 or later with the target nvptx64, for PTX of the kernels")
  if(LOOM_CLANGXX)
    execute_process(COMMAND ${LOOM_CLANGXX} --version OUTPUT_VARIABLE clang_version)
    execute_process(COMMAND ${LOOM_CLANGXX} --print-targets OUTPUT_VARIABLE clang_targets ERROR_QUIET)
    string(REGEX MATCH "clang version ([0-9]+)" clang_version "${clang_version}")
    if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL 14 AND clang_targets MATCHES "nvptx64")
      set(LOOM_CLANG ${LOOM_CLANGXX})
    endif()
  endif()
endif()

set(nvcc_missing "nvcc (put it on PATH, or set CUDACXX)")
set(clang_missing "clang 14 or later with the target nvptx64 (Debian: apt-get install clang)")
if(LOOM_CUDA STREQUAL "nvcc" AND NOT LOOM_NVCC)
  message(FATAL_ERROR "LOOM_CUDA=nvcc, but there is no ${nvcc_missing}.")
elseif(LOOM_CUDA STREQUAL "clang" AND NOT LOOM_CLANG)
  message(FATAL_ERROR "LOOM_CUDA=clang, but there is no ${clang_missing}.")
elseif(LOOM_CUDA STREQUAL "ON" AND NOT LOOM_NVCC AND NOT LOOM_CLANG)
  message(FATAL_ERROR "LOOM_CUDA=ON, but there is neither ${nvcc_missing} nor ${clang_missing}.")
endif()

set(LOOM_HAVE_CUDA OFF)
set(LOOM_NVCC_KERNELS "")
set(LOOM_CLANG_KERNELS "")
if(LOOM_NVCC)
  set(LOOM_HAVE_CUDA ON)
  execute_process(COMMAND ${LOOM_NVCC} --version OUTPUT_VARIABLE nvcc_version)
  string(REGEX MATCH "release ([0-9.]+)" nvcc_version "${nvcc_version}")
  list(JOIN LOOM_CUDA_ARCHITECTURES ", sm_" architectures)
  set(LOOM_NVCC_KERNELS "nvcc ${CMAKE_MATCH_1} for sm_${architectures} and later")
endif()
if(LOOM_CLANG)
  set(LOOM_HAVE_CUDA ON)
  string(REGEX REPLACE "(.)$" ".\\1" version "${LOOM_PTX_VERSION}")
  set(LOOM_CLANG_KERNELS "clang PTX ${version} for sm_${LOOM_PTX_ARCHITECTURE} and later")
endif()
set(kernels ${LOOM_NVCC_KERNELS} ${LOOM_CLANG_KERNELS})
list(JOIN kernels "; " kernels)
if(NOT LOOM_HAVE_CUDA)
  set(kernels none)
endif()
message(STATUS "loom: kernels for GPUs: ${kernels}")
