/* packed_rows.h -- where the data of a non-contiguous buffer lie, for C, C++ and kernels. */
#ifndef LOOM_DEVICE_PACKED_ROWS_H
#define LOOM_DEVICE_PACKED_ROWS_H

#include <stddef.h>

/* Rows at equal distances, which may be negative, and where they are in the packed buffer. In bytes. */
struct loom_packed_rows {
  char* first;
  ptrdiff_t distance;
  size_t packed, packed_distance;
  size_t row_bytes, rows;
};

#endif
