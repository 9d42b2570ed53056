NB_CUDA(
/* Halves by the tensor cores: a block makes BM x BN of C, a warp WM x WN of
 * that.  Tiles of A and B come to shared memory by asynchronous copies, STAGES
 * of them in flight, lying there as in memory: A_TURNED, m runs; B_TURNED, k
 * runs.  Eight elements behind each row keep its neighbours in other banks. */
FN void copy_vector(T *to, const T *from)
{
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(at), "l"(from));
}

FN void copy_some(T *to, const T *from, int n)
{
    for (int i = 0; i < 8; i++)
        to[i] = i < n ? from[i] : (T)0;
}

/* A tile of `rows` x `columns`, of which so many are there; each thread has its
 * place in every STEP-th row. */
template <int rows, int columns>
FN void copy_tile(T *to, const T *from, i64 leap, int down, int across,
                  bool wide)
{
    const int per = columns / 8, step = THREADS / per;
    int r = threadIdx.x / per, c = threadIdx.x % per * 8;
    to += r * (columns + 8) + c;
    from += r * leap + c;
    if (wide && down >= rows && across >= columns) {
        UNROLL
        for (int i = 0; i < rows / step; i++)
            copy_vector(to + i * step * (columns + 8), from + i * step * leap);
        return;
    }
    for (int i = 0; i < rows / step; i++)
        copy_some(to + i * step * (columns + 8), from + i * step * leap,
                  r + i * step < down ? across - c : 0);
}

FN void copy_stage(const product &p, const T *a, const T *b, T *to, int m,
                   int n, int k)
{
    T *tb = to + A_TILE;
    if (A_TURNED)
        copy_tile<BK, BM>(to, a + k * p.a_leap + m, p.a_leap, p.k - k, p.m - m,
                          A_WIDE);
    else
        copy_tile<BM, BK>(to, a + m * p.a_leap + k, p.a_leap, p.m - m, p.k - k,
                          A_WIDE);
    if (B_TURNED)
        copy_tile<BN, BK>(tb, b + n * p.b_leap + k, p.b_leap, p.n - n, p.k - k,
                          B_WIDE);
    else
        copy_tile<BK, BN>(tb, b + k * p.b_leap + n, p.b_leap, p.k - k, p.n - n,
                          B_WIDE);
}

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
    outer at = outer_at(p);
    const T *a = (const T *)p.a + at.a;
    const T *b = (const T *)p.b + at.b;
    int steps = (p.k + BK - 1) / BK;
    float sum[WM / 16][WN / 8][4] = {};
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps)
            copy_stage(p, a, b, stage + s * (A_TILE + B_TILE), m, n, s * BK);
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
                       next * BK);
        asm volatile("cp.async.commit_group;" ::);
    }
    int lane = threadIdx.x % 32;
    UNROLL
    for (int i = 0; i < WM / 16; i++) {
        UNROLL
        for (int j = 0; j < WN / 8; j++) {
            int row = m + wm + 16 * i + lane / 4;
            int column = n + wn + 8 * j + lane % 4 * 2;
            put_two(p, at.c, row, column, sum[i][j][0], sum[i][j][1]);
            put_two(p, at.c, row + 8, column, sum[i][j][2], sum[i][j][3]);
        }
    }
}
)
