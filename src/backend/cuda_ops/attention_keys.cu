NB_CUDA(
/* Rows are keys here, columns queries: BN of them at a time. */
FN void fetch_rows(u32 to, const f32 *from, i64 step, f32 by, f32 none,
                   int first, int end)
{
    for (int i = threadIdx.x; i < BN; i += THREADS) {
        f32 x = first + i < end ? from[(first + i) * step] * by : none;
        asm volatile("st.shared.f32 [%0], %1;" : : "r"(to + i * 4), "f"(x));
    }
}

FN void take2(f32 *x, u32 at)
{
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x[0]), "=f"(x[1])
                 : "r"(at));
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attend_keys(const form f)
{
    extern __shared__ __align__(128) char memory[];
    u32 sk = (u32)__cvta_generic_to_shared(memory);
    u32 sv = sk + BM * DP * 2, sq = sv + BM * DP * 2, sg = sq + 2 * BN * DP * 2;
    u32 sl = sg + 2 * BN * DP * 2, sd = sl + 2 * BN * 4;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int at = blockIdx.x % f.batch, first = (int)blockIdx.x / f.batch * BM;
    const u16 *q = f.q.data + offset_of(f.q.batch, f.size, at);
    const u16 *g = f.g.data + offset_of(f.g.batch, f.size, at);
    const f32 *lse = f.lse + offset_of(f.lse_batch, f.size, at);
    const f32 *delta = f.delta + (i64)at * f.t;
    int top = first + warp * ROWS, begin = 0;
    if (CAUSAL) begin = max(0, first - f.ahead) / BN;
    int count = (f.t + BN - 1) / BN;
    fetch<BM>(sk, f.k.data + offset_of(f.k.batch, f.size, at), f.k.row,
              f.k.column, first, f.s);
    fetch<BM>(sv, f.v.data + offset_of(f.v.batch, f.size, at), f.v.row,
              f.v.column, first, f.s);
    if (begin < count) {
        fetch<BN>(sq, q, f.q.row, f.q.column, begin * BN, f.t);
        fetch<BN>(sg, g, f.g.row, f.g.column, begin * BN, f.t);
        fetch_rows(sl, lse, f.lse_row, LOG2E, INF, begin * BN, f.t);
        fetch_rows(sd, delta, 1, 1, 0, begin * BN, f.t);
    }
    copies_sent();
    f32 dk[MT][DP / 8][4] = {}, dv[MT][DP / 8][4] = {};
    f32 scale = f.scale * LOG2E;
    for (int j = begin; j < count; j++) {
        int stage = (j - begin) & 1;
        u32 qs = sq + stage * BN * DP * 2, gs = sg + stage * BN * DP * 2;
        u32 ls = sl + stage * BN * 4, ds = sd + stage * BN * 4;
        copies_done();
        __syncthreads();
        if (j + 1 < count) {
            int other = stage ^ 1, then = (j + 1) * BN;
            fetch<BN>(sq + other * BN * DP * 2, q, f.q.row, f.q.column, then,
                      f.t);
            fetch<BN>(sg + other * BN * DP * 2, g, f.g.row, f.g.column, then,
                      f.t);
            fetch_rows(sl + other * BN * 4, lse, f.lse_row, LOG2E, INF,
                       then, f.t);
            fetch_rows(sd + other * BN * 4, delta, 1, 1, 0, then, f.t);
        }
        copies_sent();
        if (CAUSAL && j * BN + BN - 1 + f.ahead < top) continue;
        f32 s[MT][BN / 8][4] = {}, dp[MT][BN / 8][4] = {};
        UNROLL for (int e = 0; e < DP / 16; e++) {
            u32 a[MT][4], b[MT][4];
            UNROLL for (int m = 0; m < MT; m++) {
                load4(a[m], sk + spot_a(warp * ROWS + m * 16, e * 2));
                load4(b[m], sv + spot_a(warp * ROWS + m * 16, e * 2));
            }
            UNROLL for (int n = 0; n < BN / 16; n++) {
                u32 r[4], w[4];
                load4(r, qs + spot_b(n * 16, e * 2));
                load4(w, gs + spot_b(n * 16, e * 2));
                UNROLL for (int m = 0; m < MT; m++) {
                    mma(s[m][2 * n], a[m], r[0], r[1]);
                    mma(s[m][2 * n + 1], a[m], r[2], r[3]);
                    mma(dp[m][2 * n], b[m], w[0], w[1]);
                    mma(dp[m][2 * n + 1], b[m], w[2], w[3]);
                }
            }
        }
        if (CAUSAL && j * BN + f.ahead < top + ROWS - 1) {
            UNROLL for (int m = 0; m < MT; m++)
                UNROLL for (int n = 0; n < BN / 8; n++)
                    UNROLL for (int i = 0; i < 4; i++) {
                        int column = j * BN + n * 8 + lane % 4 * 2 + i % 2;
                        int row = top + m * 16 + lane / 4 + i / 2 * 8;
                        if (row > column + f.ahead) s[m][n][i] = -INF;
                    }
        }
        UNROLL for (int n = 0; n < BN / 16; n++) {
            u32 a[MT][4], b[MT][4];
            f32 less[4], mean[4];
            UNROLL for (int i = 0; i < 2; i++) {
                u32 column = (n * 16 + i * 8 + lane % 4 * 2) * 4;
                take2(less + 2 * i, ls + column);
                take2(mean + 2 * i, ds + column);
            }
            UNROLL for (int m = 0; m < MT; m++)
                UNROLL for (int i = 0; i < 4; i++) {
                    f32 *x = &s[m][2 * n + i / 2][i % 2 * 2];
                    f32 *y = &dp[m][2 * n + i / 2][i % 2 * 2];
                    f32 *l = less + i / 2 * 2, *w = mean + i / 2 * 2;
                    f32 p0 = exp2_of(x[0] * scale - l[0]);
                    f32 p1 = exp2_of(x[1] * scale - l[1]);
                    a[m][i] = pack(p0, p1);
                    b[m][i] = pack(p0 * (y[0] - w[0]), p1 * (y[1] - w[1]));
                }
            UNROLL for (int d = 0; d < DP / 16; d++) {
                u32 r[4], w[4];
                load4_turned(r, gs + spot_a(n * 16, d * 2));
                load4_turned(w, qs + spot_a(n * 16, d * 2));
                UNROLL for (int m = 0; m < MT; m++) {
                    mma(dv[m][2 * d], a[m], r[0], r[1]);
                    mma(dv[m][2 * d + 1], a[m], r[2], r[3]);
                    mma(dk[m][2 * d], b[m], w[0], w[1]);
                    mma(dk[m][2 * d + 1], b[m], w[2], w[3]);
                }
            }
        }
    }
    if (begin >= count) { /* no query sees these keys */
        copies_done();
        __syncthreads();
    }
    UNROLL for (int m = 0; m < MT; m++)
        UNROLL for (int h = 0; h < 2; h++)
            UNROLL for (int d = 0; d < DP / 8; d++) {
                u32 to = spot(warp * ROWS + m * 16 + lane / 4 + h * 8, d) +
                         lane % 4 * 4;
                put2(sk + to, pack(dk[m][d][2 * h] * f.scale,
                                   dk[m][d][2 * h + 1] * f.scale));
                put2(sv + to, pack(dv[m][d][2 * h], dv[m][d][2 * h + 1]));
            }
    give<ROWS>(f.dk.data + offset_of(f.dk.batch, f.size, at), sk, f.dk.row,
               f.dk.column, warp * ROWS, top, f.s);
    give<ROWS>(f.dv.data + offset_of(f.dv.batch, f.size, at), sv, f.dv.row,
               f.dv.column, warp * ROWS, top, f.s);
}
)
