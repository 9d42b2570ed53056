NB_CUDA(
/* Halves by the tensor cores: a block makes BM x BN of C, a warp WM x WN of
 * that.  copy_stage brings tiles of A and B to shared memory by asynchronous
 * copies, STAGES of them in flight, lying there as in memory: A_TURNED, m runs;
 * B_TURNED, k runs.  Eight elements behind each row keep its neighbours in other
 * banks. */
FN void copy_stage(const product &p, const T *a, const T *b, T *to, int m,
                   int n, int k);

FN void load_matrices(u32 *to, const T *from, bool turned)
{
    u32 at = (u32)__cvta_generic_to_shared(from);
    if (turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at));
}

FN void multiply_stage(float (&sum)[WM / 16][WN / 8][4], const T *ta, int m,
                       int n)
{
    const T *tb = ta + A_TILE;
    int lane = threadIdx.x % 32, low = lane % 8, mid = lane / 8 % 2 * 8;
    int high = lane / 16 * 8;
    UNROLL
    for (int k = 0; k < BK; k += 16) {
        u32 a[WM / 16][4];
        u32 b[WN / 16][4];
        UNROLL
        for (int i = 0; i < WM / 16; i++)
            load_matrices(a[i],
                          A_TURNED ? ta + (k + low + high) * (BM + 8) + m +
                                         16 * i + mid
                                   : ta + (m + 16 * i + low + mid) * (BK + 8) +
                                         k + high,
                          A_TURNED);
        UNROLL
        for (int j = 0; j < WN / 16; j++)
            load_matrices(b[j],
                          B_TURNED ? tb + (n + 16 * j + low + high) * (BK + 8) +
                                         k + mid
                                   : tb + (k + low + mid) * (BN + 8) + n +
                                         16 * j + high,
                          !B_TURNED);
        UNROLL
        for (int i = 0; i < WM / 16; i++) {
            UNROLL
            for (int j = 0; j < WN / 8; j++)
                multiply_small(sum[i][j], a[i], b[j / 2] + j % 2 * 2);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
multiply(const product p)
{
    extern __shared__ __align__(16) char room[];
    T *stage = (T *)room;
    int m;
    int n;
    place_tile(p, m, n);
    outer at = outer_at(p, blockIdx.x / tiles(p));
    const T *a = (const T *)p.a + at.a;
    const T *b = (const T *)p.b + at.b;
    int from = k_from(p), steps = (k_to(p) - from + BK - 1) / BK;
    float sum[WM / 16][WN / 8][4] = {};
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps)
            copy_stage(p, a, b, stage + s * (A_TILE + B_TILE), m, n,
                       from + s * BK);
        asm volatile("cp.async.commit_group;" ::);
    }
    int warp = threadIdx.x / 32, wm = warp / (BN / WN) * WM;
    int wn = warp % (BN / WN) * WN;
    for (int s = 0; s < steps; s++) {
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2));
        __syncthreads();
        multiply_stage(sum, stage + s % STAGES * (A_TILE + B_TILE), wm, wn);
        int next = s + STAGES - 1;
        if (next < steps)
            copy_stage(p, a, b, stage + next % STAGES * (A_TILE + B_TILE), m, n,
                       from + next * BK);
        asm volatile("cp.async.commit_group;" ::);
    }
    int lane = threadIdx.x % 32;
    UNROLL
    for (int i = 0; i < WM / 8; i++) {
        place to = place_of(p, at, m + wm + 8 * i + lane / 4);
        UNROLL
        for (int j = 0; j < WN / 8; j++) {
            const float *x = sum[i / 2][j] + i % 2 * 2;
            put_two(p, to, n + wn + 8 * j + lane % 4 * 2, x[0], x[1]);
        }
    }
}
)
