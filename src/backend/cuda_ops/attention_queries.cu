NB_CUDA(
FN f32 dot2(u32 a, u32 b)
{
    return wide((u16)a) * wide((u16)b) + wide(a >> 16) * wide(b >> 16);
}

/* A lane's share of the product of two rows. */
FN f32 dot(const u16 *a, i64 a_step, const u16 *b, i64 b_step)
{
    f32 y = 0;
    for (int c = threadIdx.x % 4; VECTORS && c < D / 8; c += 4) {
        uint4 x = ((const uint4 *)a)[c], w = ((const uint4 *)b)[c];
        y += dot2(x.x, w.x) + dot2(x.y, w.y) + dot2(x.z, w.z) + dot2(x.w, w.w);
    }
    for (int d = threadIdx.x % 4; !VECTORS && d < D; d += 4)
        y += wide(a[d * a_step]) * wide(b[d * b_step]);
    return y;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attend_queries(const form f)
{
    extern __shared__ __align__(128) char memory[];
    u32 sq = (u32)__cvta_generic_to_shared(memory);
    u32 sg = sq + BM * DP * 2, sk = sg + BM * DP * 2, sv = sk + 2 * BN * DP * 2;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int blocks = (f.t + BM - 1) / BM;
    int at = blockIdx.x % f.batch;
    int first = (blocks - 1 - (int)blockIdx.x / f.batch) * BM;
    const u16 *k = f.k.data + offset_of(f.k.batch, f.size, at);
    const u16 *v = f.v.data + offset_of(f.v.batch, f.size, at);
    const u16 *g = f.g.data + offset_of(f.g.batch, f.size, at);
    const u16 *o = f.o.data + offset_of(f.o.batch, f.size, at);
    const f32 *lse = f.lse + offset_of(f.lse_batch, f.size, at);
    int top = first + warp * ROWS;
    int last = f.s;
    if (CAUSAL) last = min(last, first + BM + f.ahead);
    int count = (last + BN - 1) / BN;
    fetch<BM>(sq, f.q.data + offset_of(f.q.batch, f.size, at), f.q.row,
              f.q.column, first, f.t);
    fetch<BM>(sg, g, f.g.row, f.g.column, first, f.t);
    fetch<BN>(sk, k, f.k.row, f.k.column, (count - 1) * BN, f.s);
    fetch<BN>(sv, v, f.v.row, f.v.column, (count - 1) * BN, f.s);
    copies_sent();
    f32 dq[MT][DP / 8][4] = {}, less[MT][2], delta[MT][2];
    UNROLL for (int m = 0; m < MT; m++)
        UNROLL for (int h = 0; h < 2; h++) {
            int row = top + m * 16 + lane / 4 + h * 8;
            bool in = row < f.t;
            f32 y = in ? dot(o + row * f.o.row, f.o.column, g + row * f.g.row,
                             f.g.column)
                       : 0;
            y += __shfl_xor_sync(~0u, y, 1);
            y += __shfl_xor_sync(~0u, y, 2);
            delta[m][h] = y;
            less[m][h] = in ? lse[row * f.lse_row] * LOG2E : 0;
            if (in && lane % 4 == 0) f.delta[(i64)at * f.t + row] = y;
        }
    f32 scale = f.scale * LOG2E;
    for (int j = count - 1; j >= 0; j--) {
        int stage = (count - 1 - j) & 1;
        u32 ks = sk + stage * BN * DP * 2, vs = sv + stage * BN * DP * 2;
        copies_done();
        __syncthreads();
        if (j > 0) {
            u32 next = (stage ^ 1) * BN * DP * 2;
            fetch<BN>(sk + next, k, f.k.row, f.k.column, (j - 1) * BN, f.s);
            fetch<BN>(sv + next, v, f.v.row, f.v.column, (j - 1) * BN, f.s);
        }
        copies_sent();
        if (CAUSAL && j * BN > top + ROWS - 1 + f.ahead) continue;
        f32 s[MT][BN / 8][4] = {}, dp[MT][BN / 8][4] = {};
        UNROLL for (int e = 0; e < DP / 16; e++) {
            u32 a[MT][4], b[MT][4];
            UNROLL for (int m = 0; m < MT; m++) {
                load4(a[m], sq + spot_a(warp * ROWS + m * 16, e * 2));
                load4(b[m], sg + spot_a(warp * ROWS + m * 16, e * 2));
            }
            UNROLL for (int n = 0; n < BN / 16; n++) {
                u32 r[4], w[4];
                load4(r, ks + spot_b(n * 16, e * 2));
                load4(w, vs + spot_b(n * 16, e * 2));
                UNROLL for (int m = 0; m < MT; m++) {
                    mma(s[m][2 * n], a[m], r[0], r[1]);
                    mma(s[m][2 * n + 1], a[m], r[2], r[3]);
                    mma(dp[m][2 * n], b[m], w[0], w[1]);
                    mma(dp[m][2 * n + 1], b[m], w[2], w[3]);
                }
            }
        }
        hide_keys(s, f, j * BN, top);
        UNROLL for (int n = 0; n < BN / 16; n++) {
            u32 a[MT][4];
            UNROLL for (int m = 0; m < MT; m++) {
                f32 ds[8];
                UNROLL for (int i = 0; i < 8; i++) {
                    int h = i / 2 % 2;
                    f32 p = exp2_of(s[m][2 * n + i / 4][i % 4] * scale -
                                    less[m][h]);
                    ds[i] = p * (dp[m][2 * n + i / 4][i % 4] - delta[m][h]);
                }
                UNROLL for (int i = 0; i < 4; i++)
                    a[m][i] = pack(ds[2 * i], ds[2 * i + 1]);
            }
            UNROLL for (int d = 0; d < DP / 16; d++) {
                u32 r[4];
                load4_turned(r, ks + spot_a(n * 16, d * 2));
                UNROLL for (int m = 0; m < MT; m++) {
                    mma(dq[m][2 * d], a[m], r[0], r[1]);
                    mma(dq[m][2 * d + 1], a[m], r[2], r[3]);
                }
            }
        }
    }
    UNROLL for (int m = 0; m < MT; m++)
        UNROLL for (int h = 0; h < 2; h++)
            UNROLL for (int d = 0; d < DP / 8; d++)
                put2(sq + spot(warp * ROWS + m * 16 + lane / 4 + h * 8, d) +
                         lane % 4 * 4,
                     pack(dq[m][d][2 * h] * f.scale,
                          dq[m][d][2 * h + 1] * f.scale));
    give<ROWS>(f.dq.data + offset_of(f.dq.batch, f.size, at), sq, f.dq.row,
               f.dq.column, warp * ROWS, top, f.t);
}
)
