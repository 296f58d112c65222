#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif
#if defined(__GNUC__)
#define MAY_ALIAS __attribute__((__may_alias__))
#define ALIGNED(bytes) __attribute__((__aligned__(bytes)))
#else
#define MAY_ALIAS
#define ALIGNED(bytes)
#endif

/* Numbers of several types take turns in the bytes of the arena. */
typedef int16_t MAY_ALIAS int16_a;
typedef uint16_t MAY_ALIAS uint16_a;
typedef int32_t MAY_ALIAS int32_a;
typedef int64_t MAY_ALIAS int64_a;
typedef float MAY_ALIAS real_a;

/* Fails to compile if a condition does not hold. */
#define ASSERTED(name, condition) typedef char asserted_##name[(condition) ? 1 : -1]
ASSERTED(shifts_keep_signs, (-1 >> 1) == -1);
ASSERTED(real_numbers_have_32_bits, sizeof(float) == 4);
