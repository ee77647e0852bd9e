# loom_flags: warnings, sanitizers and the language level, linked PRIVATE by every target of ours.
add_library(loom_flags INTERFACE)
target_compile_features(loom_flags INTERFACE cxx_std_20 c_std_11)
target_compile_options(loom_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra>
  $<$<COMPILE_LANGUAGE:CXX>:-Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wconversion -Wno-sign-conversion>)
if(LOOM_WERROR)
  target_compile_options(loom_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>)
endif()
if(LOOM_SANITIZE)
  target_compile_options(loom_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${LOOM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(loom_flags INTERFACE -fsanitize=${LOOM_SANITIZE})
endif()
if(LOOM_SANITIZE MATCHES integer)
  # clang's. Hashes and marks overflow on purpose; functions of libraries that are opened are called by types of our own. UBSAN_OPTIONS=halt_on_error=1 ends a program at the first report.
  target_compile_options(loom_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize=unsigned-integer-overflow,unsigned-shift-base,function
      -fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/cmake/integers_ignored.txt -fsanitize-recover=all>)
endif()
if(LOOM_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Between the sanitizers' checks g++ no longer sees which values are set. The build without them warns of those
  # that are not.
  target_compile_options(loom_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  # The thread sanitizer does not look at fences, and GCC warns of that. loom's order atomics alone, which are no
  # races; Open MPI's headers have others.
  if(LOOM_SANITIZE MATCHES thread)
    target_compile_options(loom_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Wno-tsan>)
  endif()
endif()
if(LOOM_COVERAGE)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:--coverage$<SEMICOLON>-fprofile-update=atomic>)
  target_link_options(loom_flags INTERFACE --coverage)
endif()
if(LOOM_FUZZ)
  target_compile_options(loom_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>)
endif()

# Everything may end up inside the plugin, which exports its component symbol and nothing else.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_CXX_EXTENSIONS OFF)
