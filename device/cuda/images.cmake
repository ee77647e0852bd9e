# Images of kernels.cu: bytes in the library, which the driver loads when a call first needs them. Neither the CUDA runtime
# nor libcuda is linked.
#   nvcc_<op>.fatbin         for all types
#   clang_<op>_<type>.ptx    one for each type, because the driver compiles all of an image before a call goes on
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

foreach(op RANGE 12)
  loom_nvcc_image(nvcc_${op} "Compiling the kernels of operation ${op}" ${source} ${LOOM_IMAGES_DIR} -DLOOM_OP=${op})
endforeach()
foreach(op RANGE 12)
  foreach(type IN LISTS types_${op})
    loom_clang_image(clang_${op}_${type} "Compiling PTX of operation ${op} on type ${type}" ${source} ${LOOM_IMAGES_DIR}
                     -DLOOM_OP=${op} -DLOOM_TYPE=${type})
  endforeach()
endforeach()
loom_embed_images(cuda/images.cpp ${LOOM_IMAGES_DIR} ${images})
