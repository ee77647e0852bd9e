# Run by "cmake --install": keeps DESTDIR, which CMake leaves out of its manifest, for uninstall.cmake. Parts alone have another
# manifest.
if(NOT CMAKE_INSTALL_COMPONENT)
  set(destdir "$ENV{DESTDIR}")
  if(destdir)
    cmake_path(ABSOLUTE_PATH destdir BASE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  endif()
  file(WRITE "${destdir_file}" "${destdir}")
endif()
