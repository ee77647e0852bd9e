# mca_coll_loom: the plugin that Open MPI loads. It stands alone in lib/ of the build folder; its help text lies in
# share/openmpi beside that, where the plugin looks for it.
set(LOOM_HELP_FILE ${CMAKE_BINARY_DIR}/share/openmpi/help-coll-loom.txt)
configure_file(help-coll-loom.txt ${LOOM_HELP_FILE} COPYONLY)
# The same as one C string literal, for the releases of Open MPI that cannot show it from the file.
file(READ help-coll-loom.txt help_text)
string(REPLACE "\\" "\\\\" help_text "${help_text}")
string(REPLACE "\"" "\\\"" help_text "${help_text}")
string(REPLACE "\n" "\\n\"\n\"" help_text "${help_text}")
file(CONFIGURE OUTPUT help-coll-loom.inc CONTENT "\"@help_text@\"\n" @ONLY)

add_library(mca_coll_loom MODULE
  coll_loom_component.c coll_loom_module.c coll_loom_setup.c coll_loom_allgatherv.c
  coll_loom_entries.c coll_loom_perform.c coll_loom_persistent.c coll_loom_request.c coll_loom_held.c coll_loom_operands.c coll_loom_staging.c coll_loom_staged.c coll_loom_device.c coll_loom_outer_request.c coll_loom_staged_request.c coll_loom_in_order.c coll_loom_in_order_request.c
  coll_loom_alltoall_in_place.c coll_loom_check.c coll_loom_checked_start.c coll_loom_switches.c coll_loom_counters.c coll_loom_kernels.c coll_loom_help.c)
target_include_directories(mca_coll_loom PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
target_compile_definitions(mca_coll_loom PRIVATE LOOM_VERSION_MAJOR=${PROJECT_VERSION_MAJOR}
  LOOM_VERSION_MINOR=${PROJECT_VERSION_MINOR} LOOM_VERSION_PATCH=${PROJECT_VERSION_PATCH})
target_link_libraries(mca_coll_loom PRIVATE loom::core loom::openmpi ${CMAKE_DL_LIBS} loom_flags)
set_target_properties(mca_coll_loom PROPERTIES PREFIX "" LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/plugin.map)
# nodelete: Open MPI unloads its components in MPI_Finalize, but UCX has left hooks in the C library by then.
target_link_options(mca_coll_loom PRIVATE
  LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/plugin.map LINKER:-z,nodelete LINKER:-z,defs)

# Where "cmake --install" puts them is decided when it runs:
#   with a prefix (--prefix, CMAKE_INSTALL_PREFIX) other than CMake's default, /usr/local
#                                       PREFIX/components and PREFIX/share/openmpi
#   otherwise, as root or with DESTDIR  Open MPI's own folders
#   otherwise                           ~/.openmpi/components and ~/.openmpi/share/openmpi
install(CODE "
  set(component_dir \"${LOOM_OPENMPI_COMPONENT_DIR}\")
  set(data_dir \"${LOOM_OPENMPI_DATA_DIR}\")
  set(plugin \"$<TARGET_FILE:mca_coll_loom>\")
  set(help \"${LOOM_HELP_FILE}\")")
install(SCRIPT install_plugin.cmake)
