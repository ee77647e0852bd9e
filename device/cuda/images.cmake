# An image of kernels.cu for each operation, and one for data that is only moved: bytes in the library, which the driver
# loads when a call first needs them. Neither the CUDA runtime nor libcuda is linked.
set(images_dir ${CMAKE_CURRENT_BINARY_DIR}/kernels)
file(MAKE_DIRECTORY ${images_dir})
set(architectures "")
foreach(architecture IN LISTS LOOM_CUDA_ARCHITECTURES)
  list(APPEND architectures -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()
list(GET LOOM_CUDA_ARCHITECTURES -1 last)
list(APPEND architectures -gencode arch=compute_${last},code=compute_${last})
set(nvcc_warnings "")
if(LOOM_WERROR)
  set(nvcc_warnings -Werror=all-warnings)
endif()
# nvcc 12.8 and later pack images tightly.
execute_process(COMMAND ${LOOM_NVCC} --help OUTPUT_VARIABLE nvcc_help)
if(nvcc_help MATCHES "--compress-mode")
  list(APPEND architectures --compress-mode=size)
endif()
set(images "")
foreach(which RANGE 12)
  set(image ${images_dir}/kernels_${which}.fatbin)
  add_custom_command(OUTPUT ${image}
    COMMAND ${LOOM_NVCC} -std=c++20 -O3 -fatbin ${architectures} --expt-relaxed-constexpr ${nvcc_warnings} -DLOOM_OP=${which}
            -I${PROJECT_SOURCE_DIR} -MD -MF ${image}.d -MT ${image} -o ${image} ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels.cu
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels.cu DEPFILE ${image}.d
    COMMENT "Compiling the kernels of operation ${which}" VERBATIM)
  list(APPEND images ${image})
endforeach()
set_source_files_properties(cuda/images.cpp PROPERTIES OBJECT_DEPENDS "${images}"
  COMPILE_DEFINITIONS "LOOM_KERNEL_IMAGES=\"${images_dir}\"")
