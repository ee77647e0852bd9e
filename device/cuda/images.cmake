# Images of kernels.cu: bytes in the library, which the driver loads when a call first needs them. Neither the CUDA runtime
# nor libcuda is linked.
#   nvcc_<op>.fatbin         machine code for LOOM_CUDA_ARCHITECTURES, and PTX for later ones
#   clang_<op>_<type>.ptx    one for each type, because the driver compiles all of an image before a call goes on
file(MAKE_DIRECTORY ${LOOM_IMAGES_DIR})
set(source ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels.cu)
set(images "")

# Types by operation that have kernels (kernel_args.hpp). kernel_images_test compares.
set(unsigned_integers 4 5 6 7)
set(integers 0 1 2 3 ${unsigned_integers})
set(reals 8 9 11 12)
set(complexes 13 14)
set(pairs 16 17 18 19 20 22 23)
foreach(op IN ITEMS 0 1)  # sum, prod
  set(types_${op} ${unsigned_integers} ${reals} ${complexes})
endforeach()
foreach(op IN ITEMS 2 3)  # min, max
  set(types_${op} ${integers} ${reals})
endforeach()
foreach(op RANGE 4 9)  # logical and bitwise ones
  set(types_${op} ${unsigned_integers})
endforeach()
foreach(op IN ITEMS 10 11)  # minloc, maxloc
  set(types_${op} ${pairs})
endforeach()
set(types_12 4)  # data that is only moved: bytes

# Products are rounded before they are added, as on the host: nothing is contracted to fused operations.
if(LOOM_NVCC)
  set(nvcc_flags -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -I${PROJECT_SOURCE_DIR})
  foreach(architecture IN LISTS LOOM_CUDA_ARCHITECTURES)
    list(APPEND nvcc_flags -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  list(GET LOOM_CUDA_ARCHITECTURES -1 last)
  list(APPEND nvcc_flags -gencode arch=compute_${last},code=compute_${last})
  if(LOOM_WERROR)
    list(APPEND nvcc_flags -Werror=all-warnings)
  endif()
  # nvcc 12.8 and later pack images tightly.
  execute_process(COMMAND ${LOOM_NVCC} --help OUTPUT_VARIABLE nvcc_help)
  if(nvcc_help MATCHES "--compress-mode")
    list(APPEND nvcc_flags --compress-mode=size)
  endif()
  foreach(op RANGE 12)
    set(image ${LOOM_IMAGES_DIR}/nvcc_${op}.fatbin)
    set(kept ${LOOM_IMAGES_DIR}/nvcc_${op})  # kernel_images_test reads the PTX there
    add_custom_command(OUTPUT ${image}
      COMMAND ${CMAKE_COMMAND} -E rm -rf ${kept}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${kept}
      COMMAND ${LOOM_NVCC} -fatbin ${nvcc_flags} -DLOOM_OP=${op} --keep --keep-dir ${kept} -MD -MF ${image}.d -MT ${image}
              -o ${image} ${source}
      COMMAND find ${kept} -type f ! -name *.ptx -delete
      DEPENDS ${source} DEPFILE ${image}.d COMMENT "Compiling the kernels of operation ${op}" VERBATIM)
    list(APPEND images ${image})
  endforeach()
endif()

if(LOOM_CLANG)
  # The features that clang would choose by the CUDA Toolkit at hand may be of a later PTX.
  set(clang_flags -x cuda --cuda-device-only --cuda-path=/nonexistent -nocudainc -nocudalib
      --cuda-gpu-arch=sm_${LOOM_PTX_ARCHITECTURE} -Xclang -target-feature -Xclang +ptx${LOOM_PTX_VERSION}
      -S -std=c++20 -O3 -ffp-contract=off -Wall -Wextra -I${PROJECT_SOURCE_DIR})
  if(LOOM_WERROR)
    list(APPEND clang_flags -Werror)
  endif()
  foreach(op RANGE 12)
    foreach(type IN LISTS types_${op})
      set(image ${LOOM_IMAGES_DIR}/clang_${op}_${type}.ptx)
      add_custom_command(OUTPUT ${image}
        COMMAND ${LOOM_CLANG} ${clang_flags} -DLOOM_OP=${op} -DLOOM_TYPE=${type} -MD -MF ${image}.d -MT ${image}
                -o ${image} ${source}
        DEPENDS ${source} DEPFILE ${image}.d COMMENT "Compiling PTX of operation ${op} on type ${type}" VERBATIM)
      list(APPEND images ${image})
    endforeach()
  endforeach()
endif()

# images.cpp includes a line for each.
set(list "")
foreach(image IN LISTS images)
  cmake_path(GET image STEM name)
  string(APPEND list "LOOM_IMAGE(${name}, \"${image}\")\n")
endforeach()
file(CONFIGURE OUTPUT ${LOOM_IMAGES_DIR}/images.inc CONTENT "${list}")
set_source_files_properties(cuda/images.cpp PROPERTIES OBJECT_DEPENDS "${images}"
  COMPILE_DEFINITIONS "LOOM_IMAGES=\"${LOOM_IMAGES_DIR}/images.inc\";LOOM_NVCC_KERNELS=\"${LOOM_NVCC_KERNELS}\";LOOM_CLANG_KERNELS=\"${LOOM_CLANG_KERNELS}\"")
