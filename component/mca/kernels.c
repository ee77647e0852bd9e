#include "component/mca/kernels.h"

#define BIT(op) (1u << LOOM_##op)
enum {
  ARITHMETIC = BIT(SUM) | BIT(PROD) | BIT(MIN) | BIT(MAX),
  LOGICAL = BIT(LAND) | BIT(LOR) | BIT(LXOR),
  BITWISE = BIT(BAND) | BIT(BOR) | BIT(BXOR),
  COMPLEX = BIT(SUM) | BIT(PROD),
  LOCATION = BIT(MINLOC) | BIT(MAXLOC)
};
_Static_assert(LOOM_OP_COUNT < 16, "coll_loom_type.ops has a bit per operation and one to spare");

const uint8_t coll_loom_ops[COLL_LOOM_OPS] = {
    [OMPI_OP_BASE_FORTRAN_NULL] = LOOM_OP_COUNT, [OMPI_OP_BASE_FORTRAN_MAX] = LOOM_MAX,
    [OMPI_OP_BASE_FORTRAN_MIN] = LOOM_MIN,       [OMPI_OP_BASE_FORTRAN_SUM] = LOOM_SUM,
    [OMPI_OP_BASE_FORTRAN_PROD] = LOOM_PROD,     [OMPI_OP_BASE_FORTRAN_LAND] = LOOM_LAND,
    [OMPI_OP_BASE_FORTRAN_BAND] = LOOM_BAND,     [OMPI_OP_BASE_FORTRAN_LOR] = LOOM_LOR,
    [OMPI_OP_BASE_FORTRAN_BOR] = LOOM_BOR,       [OMPI_OP_BASE_FORTRAN_LXOR] = LOOM_LXOR,
    [OMPI_OP_BASE_FORTRAN_BXOR] = LOOM_BXOR,     [OMPI_OP_BASE_FORTRAN_MAXLOC] = LOOM_MAXLOC,
    [OMPI_OP_BASE_FORTRAN_MINLOC] = LOOM_MINLOC,
};
_Static_assert(COLL_LOOM_OPS == 13, "every operation up to the last one that loom knows has its line above");

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
  return bytes == sizeof(float)         ? LOOM_FLOAT
         : bytes == sizeof(double)      ? LOOM_DOUBLE
         : bytes == sizeof(long double) ? LOOM_LONG_DOUBLE
                                        : LOOM_TYPE_COUNT;
}
static enum loom_type complex_of(size_t bytes) {
  return bytes == 2 * sizeof(float)         ? LOOM_COMPLEX_FLOAT
         : bytes == 2 * sizeof(double)      ? LOOM_COMPLEX_DOUBLE
         : bytes == 2 * sizeof(long double) ? LOOM_COMPLEX_LONG_DOUBLE
                                            : LOOM_TYPE_COUNT;
}
static enum loom_type half_of(size_t bytes) {
  return bytes == 2 ? LOOM_HALF : LOOM_TYPE_COUNT;
}
static enum loom_type float_int_of(size_t bytes) {
  return bytes == sizeof(struct {
           float v;
           int i;
         })
             ? LOOM_FLOAT_INT
             : LOOM_TYPE_COUNT;
}
static enum loom_type double_int_of(size_t bytes) {
  return bytes == sizeof(struct {
           double v;
           int i;
         })
             ? LOOM_DOUBLE_INT
             : LOOM_TYPE_COUNT;
}
static enum loom_type long_int_of(size_t bytes) {
  return bytes == 2 * sizeof(int64_t) && sizeof(long) == sizeof(int64_t) ? LOOM_LONG_INT : LOOM_TYPE_COUNT;
}
static enum loom_type short_int_of(size_t bytes) {
  return bytes == sizeof(struct {
           short v;
           int i;
         })
             ? LOOM_SHORT_INT
             : LOOM_TYPE_COUNT;
}
static enum loom_type long_double_int_of(size_t bytes) {
  return bytes == sizeof(struct {
           long double v;
           int i;
         })
             ? LOOM_LONG_DOUBLE_INT
             : LOOM_TYPE_COUNT;
}
static enum loom_type int_int_of(size_t bytes) {
  return bytes == 2 * sizeof(int) ? LOOM_INT_INT : LOOM_TYPE_COUNT;
}
static enum loom_type float_float_of(size_t bytes) {
  return bytes == 2 * sizeof(float) ? LOOM_FLOAT_FLOAT : LOOM_TYPE_COUNT;
}
static enum loom_type double_double_of(size_t bytes) {
  return bytes == 2 * sizeof(double) ? LOOM_DOUBLE_DOUBLE : LOOM_TYPE_COUNT;
}

/* One kind of type: predefined datatypes, the operations they take, and loom's type by width, which for
 * Fortran's types depends on the compiler that Open MPI was built for (0: that compiler lacks the type). */
static void add(ompi_predefined_datatype_t* const datatypes[], enum loom_type (*type_of)(size_t),
                uint16_t ops) {
  for (; *datatypes != NULL; ++datatypes) {
    const ompi_datatype_t* datatype = &(*datatypes)->dt;
    const unsigned index = (unsigned)datatype->d_f_to_c_index;
    /* From one element to the next: pairs have padding. */
    const size_t bytes = datatype->super.size == 0 ? 0 : (size_t)(datatype->super.ub - datatype->super.lb);
    const enum loom_type type = type_of(bytes);
    if (index >= COLL_LOOM_TYPES || type == LOOM_TYPE_COUNT) continue;
    coll_loom_types[index] =
        (struct coll_loom_type){.ops = ops, .type = (uint8_t)type, .bytes = (uint8_t)bytes};
  }
}

/* The same for one type. */
static void add_one(ompi_predefined_datatype_t* datatype, enum loom_type (*type_of)(size_t), uint16_t ops) {
  add((ompi_predefined_datatype_t* const[]){datatype, NULL}, type_of, ops);
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
  ompi_predefined_datatype_t* const floats[] = {
      &ompi_mpi_float, &ompi_mpi_double,  &ompi_mpi_real,        &ompi_mpi_real4,
      &ompi_mpi_real8, &ompi_mpi_dblprec, &ompi_mpi_long_double, NULL};
  ompi_predefined_datatype_t* const complexes[] = {&ompi_mpi_c_float_complex,
                                                   &ompi_mpi_c_double_complex,
                                                   &ompi_mpi_c_long_double_complex,
                                                   &ompi_mpi_cplex,
                                                   &ompi_mpi_dblcplex,
                                                   &ompi_mpi_complex8,
                                                   &ompi_mpi_complex16,
                                                   NULL};
  ompi_predefined_datatype_t* const logicals[] = {&ompi_mpi_logical,  &ompi_mpi_logical1, &ompi_mpi_logical2,
                                                  &ompi_mpi_logical4, &ompi_mpi_logical8, NULL};
  ompi_predefined_datatype_t* const int_ints[] = {&ompi_mpi_2int, &ompi_mpi_2integer, NULL};
  ompi_predefined_datatype_t* const bytes[] = {&ompi_mpi_byte, NULL};
  ompi_predefined_datatype_t* const bools[] = {&ompi_mpi_c_bool, &ompi_mpi_cxx_bool, NULL};

  add(signed_integers, signed_of, ARITHMETIC | LOGICAL | BITWISE);
  add(unsigned_integers, unsigned_of, ARITHMETIC | LOGICAL | BITWISE);
  add(floats, float_of, ARITHMETIC);
  add(bytes, unsigned_of, BITWISE);
  add(bools, unsigned_of, LOGICAL);
  add(logicals, signed_of, LOGICAL);
  add(complexes, complex_of, COMPLEX);
  add(int_ints, int_int_of, LOCATION);
  add_one(&ompi_mpi_real2, half_of, ARITHMETIC);
  add_one(&ompi_mpi_float_int, float_int_of, LOCATION);
  add_one(&ompi_mpi_double_int, double_int_of, LOCATION);
  add_one(&ompi_mpi_long_int, long_int_of, LOCATION);
  add_one(&ompi_mpi_short_int, short_int_of, LOCATION);
  add_one(&ompi_mpi_longdbl_int, long_double_int_of, LOCATION);
  add_one(&ompi_mpi_2real, float_float_of, LOCATION);
  add_one(&ompi_mpi_2dblprec, double_double_of, LOCATION);
}
