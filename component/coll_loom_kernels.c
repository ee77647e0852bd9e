#include "component/coll_loom_kernels.h"

#define BIT(op) (1u << LOOM_##op)
enum {
  ARITHMETIC = BIT(SUM) | BIT(PROD) | BIT(MIN) | BIT(MAX),
  LOGICAL = BIT(LAND) | BIT(LOR) | BIT(LXOR),
  BITWISE = BIT(BAND) | BIT(BOR) | BIT(BXOR)
};
_Static_assert(LOOM_OP_COUNT < 16, "coll_loom_type.ops has a bit per operation and one to spare");

const uint8_t coll_loom_ops[COLL_LOOM_OPS] = {
    [OMPI_OP_BASE_FORTRAN_NULL] = LOOM_OP_COUNT, [OMPI_OP_BASE_FORTRAN_MAX] = LOOM_MAX,
    [OMPI_OP_BASE_FORTRAN_MIN] = LOOM_MIN,       [OMPI_OP_BASE_FORTRAN_SUM] = LOOM_SUM,
    [OMPI_OP_BASE_FORTRAN_PROD] = LOOM_PROD,     [OMPI_OP_BASE_FORTRAN_LAND] = LOOM_LAND,
    [OMPI_OP_BASE_FORTRAN_BAND] = LOOM_BAND,     [OMPI_OP_BASE_FORTRAN_LOR] = LOOM_LOR,
    [OMPI_OP_BASE_FORTRAN_BOR] = LOOM_BOR,       [OMPI_OP_BASE_FORTRAN_LXOR] = LOOM_LXOR,
    [OMPI_OP_BASE_FORTRAN_BXOR] = LOOM_BXOR,
};
_Static_assert(COLL_LOOM_OPS == 11, "every operation up to the last one that loom knows has its line above");

struct coll_loom_type coll_loom_types[COLL_LOOM_TYPES];

/* LOOM_TYPE_COUNT: loom has no type of this width. */
static enum loom_type signed_of(size_t bytes) {
  switch (bytes) {
    case 1:
      return LOOM_INT8;
    case 2:
      return LOOM_INT16;
    case 4:
      return LOOM_INT32;
    case 8:
      return LOOM_INT64;
    default:
      return LOOM_TYPE_COUNT;
  }
}
static enum loom_type unsigned_of(size_t bytes) {
  switch (bytes) {
    case 1:
      return LOOM_UINT8;
    case 2:
      return LOOM_UINT16;
    case 4:
      return LOOM_UINT32;
    case 8:
      return LOOM_UINT64;
    default:
      return LOOM_TYPE_COUNT;
  }
}
static enum loom_type float_of(size_t bytes) {
  return bytes == sizeof(float) ? LOOM_FLOAT : bytes == sizeof(double) ? LOOM_DOUBLE : LOOM_TYPE_COUNT;
}

/* One kind of type: predefined datatypes, the operations they take, and loom's type by width, which for
 * Fortran's types depends on the compiler that Open MPI was built for (0: that compiler lacks the type). */
static void add(ompi_predefined_datatype_t* const datatypes[], enum loom_type (*type_of)(size_t),
                uint16_t ops) {
  for (; *datatypes != NULL; ++datatypes) {
    const ompi_datatype_t* datatype = &(*datatypes)->dt;
    const unsigned index = (unsigned)datatype->d_f_to_c_index;
    const enum loom_type type = type_of(datatype->super.size);
    if (index >= COLL_LOOM_TYPES || type == LOOM_TYPE_COUNT) continue;
    coll_loom_types[index] = (struct coll_loom_type){.ops = ops, .type = (uint8_t)type};
  }
}

void coll_loom_kernels_init(void) {
  ompi_predefined_datatype_t* const signed_integers[] = {
      &ompi_mpi_signed_char, &ompi_mpi_short,         &ompi_mpi_int,
      &ompi_mpi_long,        &ompi_mpi_long_long_int, &ompi_mpi_int8_t,
      &ompi_mpi_int16_t,     &ompi_mpi_int32_t,       &ompi_mpi_int64_t,
      &ompi_mpi_aint,        &ompi_mpi_offset,        &ompi_mpi_count,
      &ompi_mpi_integer,     &ompi_mpi_integer1,      &ompi_mpi_integer2,
      &ompi_mpi_integer4,    &ompi_mpi_integer8,      NULL};
  ompi_predefined_datatype_t* const unsigned_integers[] = {
      &ompi_mpi_unsigned_char,      &ompi_mpi_unsigned_short,
      &ompi_mpi_unsigned,           &ompi_mpi_unsigned_long,
      &ompi_mpi_unsigned_long_long, &ompi_mpi_uint8_t,
      &ompi_mpi_uint16_t,           &ompi_mpi_uint32_t,
      &ompi_mpi_uint64_t,           NULL};
  ompi_predefined_datatype_t* const floats[] = {&ompi_mpi_float,
                                                &ompi_mpi_double,
                                                &ompi_mpi_real,
                                                &ompi_mpi_real4,
                                                &ompi_mpi_real8,
                                                &ompi_mpi_dblprec,
                                                NULL};
  ompi_predefined_datatype_t* const bytes[] = {&ompi_mpi_byte, NULL};
  ompi_predefined_datatype_t* const bools[] = {&ompi_mpi_c_bool, &ompi_mpi_cxx_bool, NULL};

  add(signed_integers, signed_of, ARITHMETIC | LOGICAL | BITWISE);
  add(unsigned_integers, unsigned_of, ARITHMETIC | LOGICAL | BITWISE);
  add(floats, float_of, ARITHMETIC);
  add(bytes, unsigned_of, BITWISE);
  add(bools, unsigned_of, LOGICAL);
}
