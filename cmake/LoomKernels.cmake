# The compilers of GPU kernels, nvcc and clang, as LOOM_CUDA wants them. Only the compilers are used: nothing of CUDA is
# linked. clang needs no CUDA Toolkit. Sets
#   LOOM_NVCC, LOOM_CLANG                    the compilers, empty where not used
#   LOOM_NVCC_ARCHITECTURES                  what nvcc compiles for
#   LOOM_NVCC_KERNELS, LOOM_CLANG_KERNELS    what their kernels are for, in words
#   LOOM_HAVE_CUDA                           whether there will be kernels
#   LOOM_IMAGES_DIR                          where those of loom are
# and has functions that compile kernels to images, which are bytes of a program: the driver loads them.
set(LOOM_CUDA_ARCHITECTURES "" CACHE STRING
    "GPU architectures that nvcc compiles kernels for; later ones take the last one's PTX. Empty: of 70, 80, 90 and 100 those that it knows")
# The kernels need memory orders, which begin with these; drivers as of CUDA 9 know them.
set(LOOM_PTX_VERSION 60)
set(LOOM_PTX_ARCHITECTURE 70)
set(LOOM_IMAGES_DIR ${CMAKE_BINARY_DIR}/device/kernels)

set(LOOM_NVCC "")
if(LOOM_CUDA MATCHES "^(AUTO|ON|nvcc)$")
  # Not by check_language(CUDA), for which an nvcc that does not compile is none.
  if(CMAKE_CUDA_COMPILER)
    set(LOOM_NVCC ${CMAKE_CUDA_COMPILER})
  else()
    separate_arguments(from_environment UNIX_COMMAND "$ENV{CUDACXX}")
    list(APPEND from_environment nvcc)
    list(GET from_environment 0 nvcc)
    find_program(LOOM_NVCC_PROGRAM ${nvcc} HINTS ENV CUDA_PATH PATH_SUFFIXES bin DOC "nvcc, for kernels")
    if(LOOM_NVCC_PROGRAM)
      set(LOOM_NVCC ${LOOM_NVCC_PROGRAM})
    endif()
  endif()
endif()
if(LOOM_NVCC)
  execute_process(COMMAND ${LOOM_NVCC} --version OUTPUT_VARIABLE nvcc_version)
  string(REGEX MATCH "release ([0-9.]+)" nvcc_version "${nvcc_version}")
  set(nvcc_version ${CMAKE_MATCH_1})
  set(LOOM_NVCC_ARCHITECTURES ${LOOM_CUDA_ARCHITECTURES})
  if(NOT LOOM_NVCC_ARCHITECTURES)
    execute_process(COMMAND ${LOOM_NVCC} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
    foreach(architecture IN ITEMS 70 80 90 100)
      if(known MATCHES "compute_${architecture}[^0-9]")
        list(APPEND LOOM_NVCC_ARCHITECTURES ${architecture})
      endif()
    endforeach()
    if(NOT LOOM_NVCC_ARCHITECTURES)  # it is too old to say
      set(LOOM_NVCC_ARCHITECTURES 80)
    endif()
  endif()
  # Products are rounded before they are added, as on the host: nothing is contracted to fused operations.
  set(LOOM_NVCC_FLAGS -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -I${PROJECT_SOURCE_DIR})
  foreach(architecture IN LISTS LOOM_NVCC_ARCHITECTURES)
    list(APPEND LOOM_NVCC_FLAGS -gencode arch=compute_${architecture},code=sm_${architecture})
    set(last ${architecture})
  endforeach()
  list(APPEND LOOM_NVCC_FLAGS -gencode arch=compute_${last},code=compute_${last})
  if(CMAKE_CUDA_HOST_COMPILER)
    list(APPEND LOOM_NVCC_FLAGS -ccbin ${CMAKE_CUDA_HOST_COMPILER})
  elseif(NOT "$ENV{CUDAHOSTCXX}" STREQUAL "")
    list(APPEND LOOM_NVCC_FLAGS -ccbin $ENV{CUDAHOSTCXX})
  endif()
  # Packed tightly. Drivers before CUDA 12.4 cannot read that: 12.8 and 12.9 know the option, and their programs run there.
  if(nvcc_version VERSION_GREATER_EQUAL 13)
    list(APPEND LOOM_NVCC_FLAGS --compress-mode=size)
  endif()
  # It may be too old for C++20, for the host's compiler or for an architecture.
  set(attempt ${CMAKE_BINARY_DIR}/CMakeFiles/loom_nvcc)
  file(CONFIGURE OUTPUT ${attempt}/kernel.cu CONTENT "__global__ void kernel() {}\n")
  execute_process(COMMAND ${LOOM_NVCC} -fatbin ${LOOM_NVCC_FLAGS} -o ${attempt}/kernel.fatbin ${attempt}/kernel.cu
                  RESULT_VARIABLE nvcc_failed OUTPUT_VARIABLE nvcc_says ERROR_VARIABLE nvcc_says)
  if(nvcc_failed)
    string(STRIP "${nvcc_says}" nvcc_says)
    set(nvcc_failed "nvcc ${nvcc_version} (${LOOM_NVCC}) does not compile loom's kernels:\n${nvcc_says}\n")
    if(LOOM_CUDA STREQUAL "nvcc" OR LOOM_CUDA_ARCHITECTURES)
      message(FATAL_ERROR "${nvcc_failed}Set CUDACXX to another nvcc (12.0 or later), CUDAHOSTCXX to a host compiler that it takes, "
                          "LOOM_CUDA_ARCHITECTURES to what it knows, or LOOM_CUDA=clang.")
    endif()
    message(WARNING "${nvcc_failed}It is not used. Set CUDACXX to another nvcc (12.0 or later), or CUDAHOSTCXX to a host compiler that it "
                    "takes.")
    set(LOOM_NVCC "")
  elseif(LOOM_WERROR)
    list(APPEND LOOM_NVCC_FLAGS -Werror=all-warnings)
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
  list(JOIN LOOM_NVCC_ARCHITECTURES ", sm_" architectures)
  set(LOOM_NVCC_KERNELS "nvcc ${nvcc_version} for sm_${architectures} and later")
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

if(LOOM_CLANG)
  # The features that clang would choose by the CUDA Toolkit at hand may be of a later PTX.
  set(LOOM_CLANG_FLAGS -x cuda --cuda-device-only --cuda-path=/nonexistent -nocudainc -nocudalib
      --cuda-gpu-arch=sm_${LOOM_PTX_ARCHITECTURE} -Xclang -target-feature -Xclang +ptx${LOOM_PTX_VERSION}
      -S -std=c++20 -O3 -ffp-contract=off -Wall -Wextra -I${PROJECT_SOURCE_DIR})
  if(LOOM_WERROR)
    list(APPEND LOOM_CLANG_FLAGS -Werror)
  endif()
endif()

# loom_nvcc_image(NAME COMMENT SOURCE DIR [flag...]) and loom_clang_image(...), where these compilers are used, compile a source to
#   DIR/NAME.fatbin    machine code for LOOM_NVCC_ARCHITECTURES, and PTX for later ones
#   DIR/NAME.ptx
# and append it to the caller's list `images`.
function(loom_nvcc_image name comment source dir)
  if(NOT LOOM_NVCC)
    return()
  endif()
  set(image ${dir}/${name}.fatbin)
  set(kept ${dir}/${name})  # kernel_images_test reads the PTX there
  add_custom_command(OUTPUT ${image}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${kept}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${kept}
    COMMAND ${LOOM_NVCC} -fatbin ${LOOM_NVCC_FLAGS} ${ARGN} --keep --keep-dir ${kept} -MD -MF ${image}.d -MT ${image}
            -o ${image} ${source}
    COMMAND find ${kept} -type f ! -name *.ptx -delete
    DEPENDS ${source} DEPFILE ${image}.d COMMENT ${comment} VERBATIM)
  set(images ${images} ${image} PARENT_SCOPE)
endfunction()
function(loom_clang_image name comment source dir)
  if(NOT LOOM_CLANG)
    return()
  endif()
  set(image ${dir}/${name}.ptx)
  add_custom_command(OUTPUT ${image}
    COMMAND ${LOOM_CLANG} ${LOOM_CLANG_FLAGS} ${ARGN} -MD -MF ${image}.d -MT ${image} -o ${image} ${source}
    DEPENDS ${source} DEPFILE ${image}.d COMMENT ${comment} VERBATIM)
  set(images ${images} ${image} PARENT_SCOPE)
endfunction()

# loom_embed_images(SOURCE DIR image...): LOOM_IMAGES names a file that the source includes (device/cuda/image_bytes.hpp), with a
# line LOOM_IMAGE(name, "path") for each.
function(loom_embed_images source dir)
  set(list "")
  foreach(image IN LISTS ARGN)
    cmake_path(GET image STEM name)
    string(APPEND list "LOOM_IMAGE(${name}, \"${image}\")\n")
  endforeach()
  file(MAKE_DIRECTORY ${dir})
  file(CONFIGURE OUTPUT ${dir}/images.inc CONTENT "${list}")
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${ARGN}"
    COMPILE_DEFINITIONS "LOOM_IMAGES=\"${dir}/images.inc\";LOOM_NVCC_KERNELS=\"${LOOM_NVCC_KERNELS}\";LOOM_CLANG_KERNELS=\"${LOOM_CLANG_KERNELS}\"")
endfunction()
