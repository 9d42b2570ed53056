NB_CUDA(
FN f32 exp2_of(f32 x)
{
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

FN u32 pack(f32 low, f32 high)
{
    u32 y;
    if (BF16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

FN f32 wide(u16 x)
{
    f32 y;
    if (BF16) return __int_as_float((u32)x << 16);
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

/* c += a b: 16 x 16 by 16 x 8. */
FN void mma(f32 *c, const u32 *a, u32 b0, u32 b1)
{
    if (BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

FN void load4(u32 *r, u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

FN void load4_turned(u32 *r, u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

FN void copies_sent()
{
    asm volatile("cp.async.commit_group;");
}

FN void copies_done()
{
    asm volatile("cp.async.wait_group 0;");
}

/* Rows of a tile are CHUNKS times 16 bytes, turned so that eight rows of one
 * column meet all banks. */
FN u32 spot(int row, int chunk)
{
    int turn = CHUNKS % 8 == 0   ? row & 7
               : CHUNKS % 4 == 0 ? row >> 1 & 3
                                 : row >> 2 & 1;
    return (u32)(row * CHUNKS + (chunk ^ turn)) * 16;
}

/* Addresses for ldmatrix: 16 rows of 16 numbers, as A has them; the same
 * taken as two tiles of B whose columns are rows. */
FN u32 spot_a(int row, int chunk)
{
    int l = threadIdx.x % 32;
    return spot(row + l % 16, chunk + l / 16);
}

FN u32 spot_b(int row, int chunk)
{
    int l = threadIdx.x % 32;
    return spot(row + l % 8 + l / 16 * 8, chunk + l / 8 % 2);
}

/* n rows from row `first` of the matrix, zeros beyond row `end` and column D.*/
template <int n>
FN void fetch(u32 to, const u16 *from, i64 row_step, i64 step, int first,
              int end)
{
    UNROLL for (int i = threadIdx.x; i < n * CHUNKS; i += THREADS) {
        int row = i / CHUNKS, chunk = i % CHUNKS;
        bool in = first + row < end;
        u32 at = to + spot(row, chunk);
        if (VECTORS) {
            i64 there = in ? (first + row) * row_step + chunk * 8 : 0;
            int bytes = in && chunk * 8 < D ? 16 : 0;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         :
                         : "r"(at), "l"(from + there), "r"(bytes));
            continue;
        }
        u32 w[4];
        for (int e = 0; e < 4; e++) {
            u32 two[2];
            for (int h = 0; h < 2; h++) {
                int d = chunk * 8 + 2 * e + h;
                two[h] = in && d < D
                             ? from[(first + row) * row_step + d * step]
                             : 0;
            }
            w[e] = two[0] | two[1] << 16;
        }
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                     :
                     : "r"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]));
    }
}

/* A warp's 16 rows of results, which lie in a tile, to memory; row_step of the
 * matrix. */
template <int n>
FN void give(u16 *to, u32 from, i64 row_step, i64 step, int tile_row,
             int first, int end)
{
    __syncwarp();
    UNROLL for (int i = threadIdx.x % 32; i < n * CHUNKS; i += 32) {
        int row = i / CHUNKS, chunk = i % CHUNKS;
        u32 w[4];
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(from + spot(tile_row + row, chunk)));
        if (first + row >= end) continue;
        u16 *p = to + (first + row) * row_step;
        if (VECTORS && chunk * 8 < D)
            asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                         :
                         : "l"(p + chunk * 8), "r"(w[0]), "r"(w[1]), "r"(w[2]),
                           "r"(w[3]));
        for (int e = 0; !VECTORS && e < 8; e++)
            if (chunk * 8 + e < D)
                p[(chunk * 8 + e) * step] = (u16)(w[e / 2] >> e % 2 * 16);
    }
}

FN void put2(u32 at, u32 x)
{
    asm volatile("st.shared.u32 [%0], %1;" : : "r"(at), "r"(x));
}

/* A matrix of a batch. */
typedef struct matrix {
    u16 *data;
    i64 batch[4], row, column; /* strides */
} matrix;

FN i64 offset_of(const i64 *step, const int *size, int at)
{
    i64 offset = 0;
    for (int b = 3; b >= 0; b--) {
        offset += at % size[b] * step[b];
        at /= size[b];
    }
    return offset;
}

typedef struct form {
    matrix q, k, v, o, g, dq, dk, dv; /* g: what flows back to o */
    f32 *lse, *delta; /* delta: of rows, batch by batch */
    i64 lse_batch[4], lse_row;
    int size[4], batch, t, s, ahead;
    f32 scale;
} form;

/* Of queries from row `top` on, scores with keys from `first` on that a query
 * does not see become nothing. */
FN void hide_keys(f32 (&s)[MT][BN / 8][4], const form &f, int first, int top)
{
    int lane = threadIdx.x % 32;
    bool edge = first + BN > f.s;
    if (CAUSAL) edge = edge || first + BN - 1 > top + f.ahead;
    if (!edge) return;
    UNROLL for (int m = 0; m < MT; m++)
        UNROLL for (int n = 0; n < BN / 8; n++)
            UNROLL for (int i = 0; i < 4; i++) {
                int column = first + n * 8 + lane % 4 * 2 + i % 2;
                int row = top + m * 16 + lane / 4 + i / 2 * 8;
                int end = CAUSAL ? min(f.s, row + f.ahead + 1) : f.s;
                if (column >= end) s[m][n][i] = -INF;
            }
}
)
