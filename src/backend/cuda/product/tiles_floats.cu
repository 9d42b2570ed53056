NB_CUDA(
/* Numbers of 32 or 64 bits: a block of 256 threads makes BM x BN of C, each of
 * them WM x WN of that in registers.  read_tiles reads the next tiles of A
 * and B while these are multiplied. */
enum { A_EACH = BM * BK / 256, B_EACH = BN * BK / 256 };

/* Where the elements of a thread are in a tile whose rows run along x: `each`
 * of a row. */
template <int each, int columns> FN void share(int &row, int &column)
{
    int v = threadIdx.x * each;
    row = v / columns;
    column = v % columns;
}

FN void read_tiles(const product &p, const T *a, const T *b, T *to_a, T *to_b,
                   int m, int n, int k);

/* In shared memory m and n run. */
FN void keep_tiles(T (*ta)[BM + VECTOR], T (*tb)[BN + VECTOR], const T *a,
                   const T *b)
{
    int r;
    int c;
    share<A_EACH, A_TURNED ? BM : BK>(r, c);
    UNROLL
    for (int i = 0; i < A_EACH; i++)
        (A_TURNED ? ta[r][c + i] : ta[c + i][r]) = a[i];
    share<B_EACH, B_TURNED ? BK : BN>(r, c);
    UNROLL
    for (int i = 0; i < B_EACH; i++)
        (B_TURNED ? tb[c + i][r] : tb[r][c + i]) = b[i];
}

/* The places of a thread: vectors, 16 threads' apart. */
FN int nth(int i, int thread)
{
    return i / VECTOR * 16 * VECTOR + thread * VECTOR + i % VECTOR;
}

extern "C" __global__ void __launch_bounds__(256)
multiply(const product p)
{
    __shared__ __align__(16) T ta[2][BK][BM + VECTOR];
    __shared__ __align__(16) T tb[2][BK][BN + VECTOR];
    int m;
    int n;
    place_tile(p, m, n);
    outer at = outer_at(p, blockIdx.x / tiles(p));
    const T *a = (const T *)p.a + at.a;
    const T *b = (const T *)p.b + at.b;
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    T sum[WM][WN] = {};
    __align__(16) T next_a[A_EACH];
    __align__(16) T next_b[B_EACH];
    int to = k_to(p);
    read_tiles(p, a, b, next_a, next_b, m, n, k_from(p));
    keep_tiles(ta[0], tb[0], next_a, next_b);
    __syncthreads();
    for (int k = k_from(p), now = 0; k < to; k += BK, now ^= 1) {
        bool more = k + BK < to;
        if (more) read_tiles(p, a, b, next_a, next_b, m, n, k + BK);
        UNROLL
        for (int l = 0; l < BK; l++) {
            T u[WM];
            T v[WN];
            UNROLL
            for (int i = 0; i < WM; i++)
                u[i] = ta[now][l][nth(i, y)];
            UNROLL
            for (int j = 0; j < WN; j++)
                v[j] = tb[now][l][nth(j, x)];
            UNROLL
            for (int i = 0; i < WM; i++) {
                UNROLL
                for (int j = 0; j < WN; j++)
                    sum[i][j] = FMA(u[i], v[j], sum[i][j]);
            }
        }
        if (more) keep_tiles(ta[now ^ 1], tb[now ^ 1], next_a, next_b);
        __syncthreads();
    }
    UNROLL
    for (int i = 0; i < WM; i++) {
        place to = place_of(p, at, m + nth(i, y));
        UNROLL
        for (int j = 0; j < WN; j += 2)
            put_two(p, to, n + nth(j, x), sum[i][j], sum[i][j + 1]);
    }
}
)
