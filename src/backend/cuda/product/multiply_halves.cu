NB_CUDA(
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
)
