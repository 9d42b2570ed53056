/* nabla/kernel.h - kernels of your own, in C and CUDA C.
 *
 * A kernel is a function that computes rows: what stands behind "..." in the
 * signature of its op, hidden axes included, arrives as one leading axis 0 of
 * every operand, and the indices along it are the rows.  For an elementwise op
 * every element is a row, for "... n -> ... n" a row is a vector, and without a
 * signature there is one row, the whole operand.
 *
 * The runtime calls the function from several threads with disjoint ranges
 * [begin, end); it computes those rows of the outputs and touches nothing else.
 * Within a row data is contiguous, in row-major order, and rows lie one behind
 * the other; an input that all rows share has stride[0] == 0.
 *
 *     #include <nabla/kernel.h>
 *     NB_MAP1(my_kernel, x, x + 1)
 *
 *     NB_KERNEL(row_sum)
 *     {
 *         NB_ROWS(a, r) {
 *             const float *x = NB_ROW(float, nb_in(a, 0), r);
 *             float sum = 0;
 *             for (int64_t k = 0; k < nb_row_size(nb_in(a, 0)); k++)
 *                 sum += x[k];
 *             *NB_ROW(float, nb_out(a, 0), r) = sum;
 *         }
 *     }
 *
 * On a card, in a .cu file, the same text is a kernel: NB_KERNEL makes an
 * extern "C" __global__ entry that takes the struct by value, and its rows are
 * shared by threads.  NB_ROWS gives a thread every row it computes alone, and
 * NB_BLOCK_ROWS a block, whose threads share it:
 *
 *     NB_LAUNCH(row_sum, 128, 0)
 *     NB_KERNEL(row_sum)
 *     {
 *         NB_BLOCK_ROWS(a, r) {
 *             ... threadIdx.x, __syncthreads() ...
 *         }
 *     }
 *
 * Both walk on by the whole grid, which may have fewer threads than there are
 * rows.  Blocks have 256 threads and no shared memory of the dynamic kind,
 * unless NB_LAUNCH, which stands before the kernel, says otherwise.
 *
 * This header needs nothing but the C library, and of NVRTC nothing at all. */
#ifndef NABLA_KERNEL_H
#define NABLA_KERNEL_H

#ifdef __CUDACC_RTC__ /* which has no headers of C, but knows what is in them */
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#include <string.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef NABLA_DTYPE_H
enum {
    NB_NOTYPE,
    NB_BOOL, /* one byte, 0 or 1 */
    NB_I8,
    NB_I16,
    NB_I32,
    NB_I64,
    NB_U8,
    NB_U16,
    NB_U32,
    NB_U64,
    NB_F16,
    NB_BF16,
    NB_F32,
    NB_F64
};
#define NB_KERNEL_DTYPES
#endif

enum { NB_KERNEL_ABI = 1, NB_KERNEL_VIEWS = 16, NB_KERNEL_ATTRS = 16 };
enum { NB_KERNEL_RANK = 8 }; /* of a view, axis 0 included */

typedef struct nb_view { /* one operand; strides count elements */
    void *data;
    int32_t dtype, rank; /* NB_F32, NB_I64, ... */
    int64_t shape[8], stride[8];
} nb_view;

typedef union nb_attr { /* int and bool: i; float: f */
    int64_t i;
    double f;
} nb_attr;

typedef struct nb_kernel_args {
    int32_t nin, nout, nattr, abi;
    int64_t begin, end; /* the rows this call computes */
    int32_t *status;    /* store non-zero to fail */
    nb_attr attr[16];
    nb_view view[16]; /* inputs, then outputs */
} nb_kernel_args;

/* What NB_MAP stores where it cannot do what is asked. */
enum { NB_STATUS_DTYPE = -1, NB_STATUS_SHAPE = -2, NB_STATUS_COUNT = -3 };

#if defined(__GNUC__) && !defined(__CUDACC__)
#define NB_KERNEL_EXPORT __attribute__((visibility("default")))
#else
#define NB_KERNEL_EXPORT
#endif

/* Functions that kernels call. */
#ifdef __CUDACC__
#define NB_INLINE static __device__ __forceinline__
#else
#define NB_INLINE static inline
#endif

/* Opens a kernel, a function of one argument, a. */
#if defined(__CUDACC__)
#define NB_KERNEL(name)                                                       \
    NB_INLINE void name##_rows(const nb_kernel_args *a);                      \
    extern "C" __global__ void name(const __grid_constant__ nb_kernel_args a) \
    {                                                                         \
        name##_rows(&a);                                                      \
    }                                                                         \
    NB_INLINE void name##_rows(const nb_kernel_args *a)
#elif defined(__cplusplus)
#define NB_KERNEL(name)                                            \
    extern "C" NB_KERNEL_EXPORT void name(const nb_kernel_args *); \
    void name(const nb_kernel_args *a)
#else
#define NB_KERNEL(name)                                 \
    NB_KERNEL_EXPORT void name(const nb_kernel_args *); \
    void name(const nb_kernel_args *a)
#endif

/* Says how a card launches it; nothing to the CPU.  The numbers are told by a
 * kernel beside it. */
#ifdef __CUDACC__
#define NB_LAUNCH(name, threads, shared_bytes)            \
    extern "C" __global__ void __launch_bounds__(threads) \
        name(const __grid_constant__ nb_kernel_args a);   \
    extern "C" __global__ void name##_launch(int *to)     \
    {                                                     \
        to[0] = (threads);                                \
        to[1] = (int)(shared_bytes);                      \
    }
#else
#define NB_LAUNCH(name, threads, shared_bytes)
#endif

/* Loops over the rows of this call: those of a thread, and those of a block of
 * threads, which on the CPU is one. */
#ifdef __CUDACC__
#define NB_THREAD  ((int64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define NB_THREADS ((int64_t)gridDim.x * blockDim.x)
#define NB_ROWS(a, r) \
    for (int64_t r = (a)->begin + NB_THREAD; r < (a)->end; r += NB_THREADS)
#define NB_BLOCK_ROWS(a, r) \
    for (int64_t r = (a)->begin + blockIdx.x; r < (a)->end; r += gridDim.x)
#else
#define NB_ROWS(a, r)       for (int64_t r = (a)->begin; r < (a)->end; r++)
#define NB_BLOCK_ROWS(a, r) NB_ROWS(a, r)
#endif

/* Points at row r. */
#define NB_ROW(type, view, r) \
    ((type *)(view)->data + (int64_t)(r) * (view)->stride[0])

NB_INLINE const nb_view *nb_in(const nb_kernel_args *a, int i)
{
    return &a->view[i];
}

NB_INLINE const nb_view *nb_out(const nb_kernel_args *a, int i)
{
    return &a->view[a->nin + i];
}

/* Elements of one row. */
NB_INLINE int64_t nb_row_size(const nb_view *v)
{
    int64_t n = 1;
    for (int d = 1; d < v->rank; d++)
        n *= v->shape[d];
    return n;
}

/* Floats of 16 bits, as bits; rounds to nearest even. */

NB_INLINE float nb_bits_to_f32(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

NB_INLINE uint32_t nb_f32_to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

NB_INLINE float nb_load_bf16(uint16_t h)
{
    return nb_bits_to_f32((uint32_t)h << 16);
}

NB_INLINE uint16_t nb_store_bf16(float x)
{
    uint32_t b = nb_f32_to_bits(x);
    if (x != x) return (uint16_t)(b >> 16 | 0x40);
    return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

NB_INLINE float nb_load_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, a = h & 0x7fff;
    if (a >= 0x7c00) /* infinite, or no number */
        return nb_bits_to_f32(sign | 0x7f800000 | (a & 0x3ff) << 13);
    if (a >= 0x400) return nb_bits_to_f32(sign | ((a << 13) + (112u << 23)));
    float x = (float)a * 0x1p-24f;
    return sign ? -x : x;
}

NB_INLINE uint16_t nb_store_f16(float x)
{
    uint32_t b = nb_f32_to_bits(x), a = b & 0x7fffffff;
    uint16_t sign = (uint16_t)(b >> 16 & 0x8000);
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (a >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (a >= 0x38800000) /* may carry into the exponent, up to infinity */
        return (uint16_t)(sign |
                          (a - (112u << 23) + 0xfff + (a >> 13 & 1)) >> 13);
    /* beside 0.5 the last bit weighs as much as the smallest half */
    float sum = nb_bits_to_f32(a) + 0.5f;
    return (uint16_t)(sign | (nb_f32_to_bits(sum) - nb_f32_to_bits(0.5f)));
}

/* Elementwise kernels: an expression in one, two or three variables, for every
 * numeric dtype, the same for all operands.  Floats of 16 bits are computed in
 * float.  Each operand moves by one element or, if it is shared, stays. */

#define NB_LOAD_PLAIN(x)  (x)
#define NB_STORE_PLAIN(x) (x)
#define NB_LOAD_F16       nb_load_f16
#define NB_STORE_F16      nb_store_f16
#define NB_LOAD_BF16      nb_load_bf16
#define NB_STORE_BF16     nb_store_bf16

/* Rows of one element are one run together; else every row is a run. */
typedef struct nb_map_runs {
    int64_t n, runs;
    int64_t step[3];
} nb_map_runs;

/* How far operand i moves from one element to the next; -1: it has another
 * number of them. */
NB_INLINE int64_t nb_map_step(const nb_kernel_args *a, int i, int64_t size)
{
    const nb_view *v = &a->view[i];
    int64_t own = nb_row_size(v);
    if (size == 1) return own == 1 ? v->stride[0] : -1;
    return own == size ? 1 : own == 1 ? 0 : -1;
}

/* Operands that an expression of fewer has not are the first again. */
NB_INLINE int32_t nb_map_plan(const nb_kernel_args *a, int nin, nb_map_runs *m)
{
    if (a->nin != nin || a->nout != 1) return NB_STATUS_COUNT;
    int64_t size = nb_row_size(nb_out(a, 0)), rows = a->end - a->begin;
    m->n = size == 1 ? rows : size;
    m->runs = size == 1 ? 1 : rows;
    for (int i = 0; i < 3; i++) {
        int of = i < nin ? i : 0;
        m->step[i] = nb_map_step(a, of, size);
        if (a->view[of].dtype != nb_out(a, 0)->dtype) return NB_STATUS_DTYPE;
        if (m->step[i] < 0) return NB_STATUS_SHAPE;
    }
    return 0;
}

#define NB_MAP_AT(name, T, x, y, z, expr)    \
    NB_INLINE T name##_at_##T(T x, T y, T z) \
    {                                        \
        (void)x, (void)y, (void)z;           \
        return (T)(expr);                    \
    }

/* Elements stored as T, computed as V.  On a card a thread takes several that
 * are far apart, and has read all before it computes. */
#ifdef __CUDACC__
#define NB_MAP_AHEAD 4
#define NB_MAP_PLACE(u)                                    \
    int64_t at = e + (u)*NB_THREADS, k = a->begin, j = at; \
    if (at >= all) continue;                               \
    if (m->runs > 1) k += at / m->n, j = at % m->n;
#define NB_MAP_RUN(name, tag, T, V, how)                                       \
    NB_INLINE void name##_run_##tag(const nb_kernel_args *a, int nin,          \
                                    const nb_map_runs *m)                      \
    {                                                                          \
        int64_t all = m->n * m->runs;                                          \
        int second = nin > 1 ? 1 : 0, third = nin > 2 ? 2 : 0;                 \
        for (int64_t e = NB_THREAD; e < all; e += NB_MAP_AHEAD * NB_THREADS) { \
            T v[NB_MAP_AHEAD][3];                                              \
            _Pragma("unroll") for (int u = 0; u < NB_MAP_AHEAD; u++)           \
            {                                                                  \
                NB_MAP_PLACE(u)                                                \
                for (int i = 0; i < nin; i++)                                  \
                    v[u][i] = NB_ROW(T, nb_in(a, i), k)[j * m->step[i]];       \
            }                                                                  \
            _Pragma("unroll") for (int u = 0; u < NB_MAP_AHEAD; u++)           \
            {                                                                  \
                NB_MAP_PLACE(u)                                                \
                V y = name##_at_##V(NB_LOAD_##how(v[u][0]),                    \
                                    NB_LOAD_##how(v[u][second]),               \
                                    NB_LOAD_##how(v[u][third]));               \
                NB_ROW(T, nb_out(a, 0), k)[j] = NB_STORE_##how(y);             \
            }                                                                  \
        }                                                                      \
    }
#else
#define NB_MAP_RUN(name, tag, T, V, how)                                    \
    static void name##_run_##tag(const nb_kernel_args *a, int nin,          \
                                 const nb_map_runs *m)                      \
    {                                                                       \
        const nb_view *in[3];                                               \
        int64_t sx = m->step[0], sy = m->step[1], sz = m->step[2];          \
        for (int i = 0; i < 3; i++)                                         \
            in[i] = nb_in(a, i < nin ? i : 0);                              \
        for (int64_t k = a->begin; k < a->begin + m->runs; k++) {           \
            const T *x = NB_ROW(T, in[0], k), *y = NB_ROW(T, in[1], k);     \
            const T *z = NB_ROW(T, in[2], k);                               \
            T *to = NB_ROW(T, nb_out(a, 0), k);                             \
            if (sx == 1 && sy == 1 && sz == 1)                              \
                for (int64_t j = 0; j < m->n; j++)                          \
                    to[j] = NB_STORE_##how(name##_at_##V(                   \
                        NB_LOAD_##how(x[j]), NB_LOAD_##how(y[j]),           \
                        NB_LOAD_##how(z[j])));                              \
            else                                                            \
                for (int64_t j = 0; j < m->n; j++)                          \
                    to[j] = NB_STORE_##how(name##_at_##V(                   \
                        NB_LOAD_##how(x[j * sx]), NB_LOAD_##how(y[j * sy]), \
                        NB_LOAD_##how(z[j * sz])));                         \
        }                                                                   \
    }
#endif

#define NB_MAP_BOTH(name, T, x, y, z, expr) \
    NB_MAP_AT(name, T, x, y, z, expr)       \
    NB_MAP_RUN(name, T, T, T, PLAIN)

#define NB_MAP(name, nin, x, y, z, expr)                         \
    NB_MAP_BOTH(name, int8_t, x, y, z, expr)                     \
    NB_MAP_BOTH(name, int16_t, x, y, z, expr)                    \
    NB_MAP_BOTH(name, int32_t, x, y, z, expr)                    \
    NB_MAP_BOTH(name, int64_t, x, y, z, expr)                    \
    NB_MAP_BOTH(name, uint8_t, x, y, z, expr)                    \
    NB_MAP_BOTH(name, uint16_t, x, y, z, expr)                   \
    NB_MAP_BOTH(name, uint32_t, x, y, z, expr)                   \
    NB_MAP_BOTH(name, uint64_t, x, y, z, expr)                   \
    NB_MAP_BOTH(name, float, x, y, z, expr)                      \
    NB_MAP_BOTH(name, double, x, y, z, expr)                     \
    NB_MAP_RUN(name, f16, uint16_t, float, F16)                  \
    NB_MAP_RUN(name, bf16, uint16_t, float, BF16)                \
    NB_KERNEL(name)                                              \
    {                                                            \
        nb_map_runs m;                                           \
        int32_t status = nb_map_plan(a, nin, &m);                \
        if (!status) switch (nb_out(a, 0)->dtype) {              \
            case NB_I8: name##_run_int8_t(a, nin, &m); break;    \
            case NB_I16: name##_run_int16_t(a, nin, &m); break;  \
            case NB_I32: name##_run_int32_t(a, nin, &m); break;  \
            case NB_I64: name##_run_int64_t(a, nin, &m); break;  \
            case NB_U8: name##_run_uint8_t(a, nin, &m); break;   \
            case NB_U16: name##_run_uint16_t(a, nin, &m); break; \
            case NB_U32: name##_run_uint32_t(a, nin, &m); break; \
            case NB_U64: name##_run_uint64_t(a, nin, &m); break; \
            case NB_F16: name##_run_f16(a, nin, &m); break;      \
            case NB_BF16: name##_run_bf16(a, nin, &m); break;    \
            case NB_F32: name##_run_float(a, nin, &m); break;    \
            case NB_F64: name##_run_double(a, nin, &m); break;   \
            default: status = NB_STATUS_DTYPE;                   \
            }                                                    \
        if (status) *a->status = status;                         \
    }

#define NB_MAP1(name, x, expr)       NB_MAP(name, 1, x, nb_2, nb_3, expr)
#define NB_MAP2(name, x, y, expr)    NB_MAP(name, 2, x, y, nb_3, expr)
#define NB_MAP3(name, x, y, z, expr) NB_MAP(name, 3, x, y, z, expr)

#ifdef __cplusplus
}
#endif
#endif
