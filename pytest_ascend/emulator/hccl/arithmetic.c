/* Element-wise reductions in the width of the dtype: each step is rounded to it, as when data is accumulated on its way
 * into memory. */
#include "hccl.h"

#include <stdlib.h>
#include <string.h>

float hccl_from_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff, bits;
    if (magnitude >= 0x7c00) bits = 0x7f800000 | (magnitude & 0x3ff) << 13;
    else bits = magnitude << 13;
    float value;
    memcpy(&value, &bits, 4);
    if (magnitude < 0x7c00) value *= 0x1p112f; /* denormals included */
    memcpy(&bits, &value, 4);
    bits |= sign;
    memcpy(&value, &bits, 4);
    return value;
}

uint16_t hccl_to_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;
    if (bits >= 0x477ff000) return sign | 0x7c00; /* from half way between the largest number and the next step */
    if (bits < 0x38800000) { /* a denormal, or zero: adding 0.5 makes the processor round to steps of 2^-24 */
        float magnitude;
        memcpy(&magnitude, &bits, 4);
        magnitude += 0.5f;
        memcpy(&bits, &magnitude, 4);
        return sign | (uint16_t)(bits - 0x3f000000);
    }
    bits += 0xfff + (bits >> 13 & 1);
    return sign | (uint16_t)((bits - 0x38000000) >> 13);
}

static float from_bfloat(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint16_t to_bfloat(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* NaN stays NaN, as in torch. */
#define LARGER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define LOOP(expression) for (uint64_t i = 0; i < count; i++) { expression; }

/* Integers wrap around, which is only defined for unsigned ones. */
#define FOLD(name, type, wide)                                              \
    static void name(type *x, const type *y, uint64_t count, int op) {      \
        switch (op) {                                                       \
            case SUM: LOOP(x[i] = (type)((wide)x[i] + (wide)y[i])) break;   \
            case PROD: LOOP(x[i] = (type)((wide)x[i] * (wide)y[i])) break;  \
            case MAX: LOOP(x[i] = LARGER(x[i], y[i])) break;                \
            default: LOOP(x[i] = SMALLER(x[i], y[i]))                       \
        }                                                                   \
    }

#define FOLD_HALF(name, widen, narrow)                                                   \
    static void name(uint16_t *x, const uint16_t *y, uint64_t count, int op) {           \
        for (uint64_t i = 0; i < count; i++) {                                           \
            float a = widen(x[i]), b = widen(y[i]);                                      \
            x[i] = narrow(op == SUM ? a + b : op == PROD ? a * b : op == MAX ? LARGER(a, b) : SMALLER(a, b)); \
        }                                                                                \
    }

FOLD(fold_int8, int8_t, uint8_t)
FOLD(fold_int16, int16_t, uint32_t)
FOLD(fold_int32, int32_t, uint32_t)
FOLD(fold_int64, int64_t, uint64_t)
FOLD(fold_float, float, float)
FOLD_HALF(fold_half, hccl_from_half, hccl_to_half)
FOLD_HALF(fold_bfloat, from_bfloat, to_bfloat)

void hccl_fold(void *into, const void *from, uint64_t count, int dtype, int op) {
    switch (dtype) {
        case INT8: fold_int8(into, from, count, op); break;
        case INT16: fold_int16(into, from, count, op); break;
        case INT32: fold_int32(into, from, count, op); break;
        case INT64: fold_int64(into, from, count, op); break;
        case FP32: fold_float(into, from, count, op); break;
        case FP16: fold_half(into, from, count, op); break;
        case BF16: fold_bfloat(into, from, count, op); break;
    }
}

/* As documented by HcclAllReduce for Atlas A2: these dtypes, and no product of int16 and bfloat16. */
int hccl_can_reduce(int dtype, int op) {
    if (dtype == INT16 || dtype == BF16) return op != PROD;
    return dtype == INT8 || dtype == INT32 || dtype == INT64 || dtype == FP32 || dtype == FP16;
}

/* The order in which the ranks' data is summed in a share: by rank; with numerics chip:SEED rotated, as in a ring that
 * starts at another rank in each share; and unless determinism is requested, rotated anew in each call. */
void hccl_order(const communicator *comm, const agreement *what, uint32_t share, uint32_t *order) {
    const char *numerics = getenv("PYTEST_ASCEND_EMULATED_NUMERICS");
    uint64_t start = 0, step = 1, n = comm->ranks;
    if (numerics && !strncmp(numerics, "chip", 4)) {
        uint64_t seed = numerics[4] == ':' ? strtoull(numerics + 5, NULL, 10) : 0;
        start = seed + share + 1 + (comm->is_deterministic ? 0 : what->sequence * 2654435761u >> 7);
        step = (seed + (comm->is_deterministic ? 0 : what->sequence)) % 2 ? n - 1 : 1;
    }
    for (uint64_t i = 0; i < n; i++) order[i] = (uint32_t)((start + i * step) % n);
}
