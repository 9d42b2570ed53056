NB_CUDA(
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attend(const form f)
{
    extern __shared__ __align__(128) char memory[];
    u32 sq = (u32)__cvta_generic_to_shared(memory);
    u32 sk = sq + BM * DP * 2, sv = sk + 2 * BN * DP * 2;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int blocks = (f.t + BM - 1) / BM;
    int at = blockIdx.x % f.batch;
    int first = (blocks - 1 - (int)blockIdx.x / f.batch) * BM;
    const u16 *q = f.q.data + offset_of(f.q.batch, f.size, at);
    const u16 *k = f.k.data + offset_of(f.k.batch, f.size, at);
    const u16 *v = f.v.data + offset_of(f.v.batch, f.size, at);
    int top = first + warp * ROWS; /* the warp's first row */
    int last = f.s;                /* keys that the block sees */
    if (CAUSAL) last = min(last, first + BM + f.ahead);
    int count = (last + BN - 1) / BN;
    fetch<BM>(sq, q, f.q.row, f.q.column, first, f.t);
    fetch<BN>(sk, k, f.k.row, f.k.column, (count - 1) * BN, f.s);
    fetch<BN>(sv, v, f.v.row, f.v.column, (count - 1) * BN, f.s);
    copies_sent();
    f32 o[MT][DP / 8][4] = {}, peak[MT][2], sum[MT][2];
    UNROLL for (int m = 0; m < MT; m++)
        for (int h = 0; h < 2; h++) {
            peak[m][h] = -1e30f;
            sum[m][h] = 0;
        }
    f32 scale = f.scale * LOG2E;
    u32 a[MT][DP / 16][4];
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
        if (j == count - 1) {
            UNROLL for (int m = 0; m < MT; m++)
                UNROLL for (int e = 0; e < DP / 16; e++)
                    load4(a[m][e], sq + spot_a(warp * ROWS + m * 16, e * 2));
        }
        if (CAUSAL && j * BN > top + ROWS - 1 + f.ahead) continue;
        f32 s[MT][BN / 8][4] = {};
        UNROLL for (int e = 0; e < DP / 16; e++) {
            UNROLL for (int n = 0; n < BN / 16; n++) {
                u32 r[4];
                load4(r, ks + spot_b(n * 16, e * 2));
                UNROLL for (int m = 0; m < MT; m++) {
                    mma(s[m][2 * n], a[m][e], r[0], r[1]);
                    mma(s[m][2 * n + 1], a[m][e], r[2], r[3]);
                }
            }
        }
        hide_keys(s, f, j * BN, top);
        UNROLL for (int m = 0; m < MT; m++)
            UNROLL for (int h = 0; h < 2; h++) {
                f32 most = peak[m][h];
                UNROLL for (int n = 0; n < BN / 8; n++)
                    most = fmaxf(most,
                                 fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
                most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
                most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
                f32 less = most * scale;
                f32 fade = exp2_of(peak[m][h] * scale - less);
                peak[m][h] = most;
                f32 part = 0;
                UNROLL for (int n = 0; n < BN / 8; n++)
                    UNROLL for (int i = 2 * h; i < 2 * h + 2; i++) {
                        s[m][n][i] = exp2_of(s[m][n][i] * scale - less);
                        part += s[m][n][i];
                    }
                sum[m][h] = sum[m][h] * fade + part;
                UNROLL for (int d = 0; d < DP / 8; d++) {
                    o[m][d][2 * h] *= fade;
                    o[m][d][2 * h + 1] *= fade;
                }
            }
        UNROLL for (int n = 0; n < BN / 16; n++) {
            u32 p[MT][4];
            UNROLL for (int m = 0; m < MT; m++)
                UNROLL for (int i = 0; i < 4; i++)
                    p[m][i] = pack(s[m][2 * n + i / 2][i % 2 * 2],
                                   s[m][2 * n + i / 2][i % 2 * 2 + 1]);
            UNROLL for (int d = 0; d < DP / 16; d++) {
                u32 r[4];
                load4_turned(r, vs + spot_a(n * 16, d * 2));
                UNROLL for (int m = 0; m < MT; m++) {
                    mma(o[m][2 * d], p[m], r[0], r[1]);
                    mma(o[m][2 * d + 1], p[m], r[2], r[3]);
                }
            }
        }
    }
    f32 *lse = f.lse + offset_of(f.lse_batch, f.size, at);
    UNROLL for (int m = 0; m < MT; m++)
        UNROLL for (int h = 0; h < 2; h++) {
            f32 all = sum[m][h];
            all += __shfl_xor_sync(~0u, all, 1);
            all += __shfl_xor_sync(~0u, all, 2);
            f32 share = 1 / all;
            int part = warp * ROWS + m * 16 + lane / 4 + h * 8;
            if (lane % 4 == 0 && first + part < f.t)
                lse[(first + part) * f.lse_row] =
                    peak[m][h] * f.scale + __logf(all);
            UNROLL for (int d = 0; d < DP / 8; d++)
                put2(sq + spot(part, d) + lane % 4 * 4,
                     pack(o[m][d][2 * h] * share, o[m][d][2 * h + 1] * share));
        }
    give<ROWS>(f.o.data + offset_of(f.o.batch, f.size, at), sq, f.o.row,
               f.o.column, warp * ROWS, top, f.t);
}
)
