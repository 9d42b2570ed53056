/* shim_mma.h - products of small matrices by a warp, as mma.sync and ldmatrix
 * have them.  Every lane shows its registers to the others, who read what the
 * tables of the PTX manual say they hold; g is lane / 4 and t is lane % 4. */
#ifndef SIM_SHIM_MMA_H
#define SIM_SHIM_MMA_H

#include "shim_ptx.h"

struct sim_registers {
    unsigned a[4], b[2];
};

static inline unsigned sim_lane(void)
{
    return sim_special_laneid;
}

/* The registers of all lanes, until sim_meet. */
static inline const sim_registers *const *sim_gather(int line,
                                                     const sim_registers *own)
{
    return (const sim_registers *const *)sim_together(
        SIM_GATHER, line, ~0u, 0, 32, (unsigned long long)own);
}

template <int half> static inline float sim_part(unsigned bits, int which)
{
    unsigned short h = (unsigned short)(bits >> 16 * which);
    return half ? sim_half_to_float(h) : sim_bfloat_to_float(h);
}

/* Rows of A and columns of B with `pack` numbers a register: 2 halves, or 1 of
 * tf32 (format 2).  A has 16 rows; registers go on along k in steps of 4
 * lanes. */
template <int format> static inline float sim_number(unsigned bits, int which)
{
    if (format == 2) return __uint_as_float(bits & 0xffffe000u);
    return sim_part<format>(bits, which);
}

template <int format, int k>
static inline void sim_mma(int line, float *d, const sim_registers *own)
{
    const int pack = format == 2 ? 1 : 2, span = 4 * pack;
    const sim_registers *const *all = sim_gather(line, own);
    int lane = (int)sim_lane(), g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        int row = g + 8 * (i / 2), column = 2 * t + i % 2;
        for (int j = 0; j < k; j++) {
            int from = j % span / pack, which = j % pack, part = j / span;
            unsigned a = all[row % 8 * 4 + from]->a[2 * part + row / 8];
            unsigned b = all[column * 4 + from]->b[part];
            d[i] += sim_number<format>(a, which) * sim_number<format>(b, which);
        }
    }
    sim_meet(line, ~0u);
}

#define SIM_MMA16(name, format)                                               \
    static inline void name(int line, float &d0, float &d1, float &d2,        \
                            float &d3, unsigned a0, unsigned a1, unsigned a2, \
                            unsigned a3, unsigned b0, unsigned b1, float c0,  \
                            float c1, float c2, float c3)                     \
    {                                                                         \
        const int k = format == 2 ? 8 : 16;                                   \
        float d[4] = {c0, c1, c2, c3};                                        \
        sim_registers own = {{a0, a1, a2, a3}, {b0, b1}};                     \
        sim_mma<format, k>(line, d, &own);                                    \
        d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];                           \
    }

SIM_MMA16(sim_mma_bf16, 0)
SIM_MMA16(sim_mma_f16, 1)
SIM_MMA16(sim_mma_tf32, 2)

#define sim_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(...) \
    sim_mma_bf16(__LINE__, __VA_ARGS__)
#define sim_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(...) \
    sim_mma_f16(__LINE__, __VA_ARGS__)
#define sim_ptx_mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(...) \
    sim_mma_tf32(__LINE__, __VA_ARGS__)

/* ldmatrix: lane 8 m + r gives the address of row r of matrix m, 16 bytes; a
 * lane gets the numbers 2 t and 2 t + 1 of row g or, transposed, of column
 * g. */
static inline unsigned sim_matrix_part(const unsigned long long *rows, int m,
                                       bool turned)
{
    int g = (int)sim_lane() / 4, t = (int)sim_lane() % 4;
    unsigned out = 0;
    for (int i = 0; i < 2; i++) {
        int row = turned ? 2 * t + i : g, column = turned ? g : 2 * t + i;
        const unsigned short *at = (const unsigned short *)rows[8 * m + row];
        out |= (unsigned)at[column] << 16 * i;
    }
    return out;
}

template <class... R>
static inline void sim_matrices(int line, bool turned, const char *row,
                                R &...to)
{
    if ((unsigned long long)row % 16) sim_host_now->stop(716);
    const unsigned long long *rows = (const unsigned long long *)sim_together(
        SIM_GATHER, line, ~0u, 0, 32, (unsigned long long)row);
    unsigned *list[] = {&to...};
    for (int m = 0; m < (int)sizeof...(R); m++)
        *list[m] = sim_matrix_part(rows, m, turned);
    sim_meet(line, ~0u);
}

#define sim_ptx_ldmatrix_sync_aligned_m8n8_x1_shared_b16(a, p) \
    sim_matrices(__LINE__, false, p, a)
#define sim_ptx_ldmatrix_sync_aligned_m8n8_x2_shared_b16(a, b, p) \
    sim_matrices(__LINE__, false, p, a, b)
#define sim_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(a, b, c, d, p) \
    sim_matrices(__LINE__, false, p, a, b, c, d)
#define sim_ptx_ldmatrix_sync_aligned_m8n8_x1_trans_shared_b16(a, p) \
    sim_matrices(__LINE__, true, p, a)
#define sim_ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(a, b, p) \
    sim_matrices(__LINE__, true, p, a, b)
#define sim_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(a, b, c, d, p) \
    sim_matrices(__LINE__, true, p, a, b, c, d)

#endif
