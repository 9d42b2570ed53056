NB_CUDA(
FN void copy_vector(T *to, const T *from, const T *some)
{
    u32 at = (u32)__cvta_generic_to_shared(to);
    int bytes = from ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(at), "l"(from ? from : some), "r"(bytes));
}

/* A tile of A, or of B, that lies in rows of `columns`. */
template <bool of_a, int rows, int columns>
FN void copy_tile(const product &p, T *to, const T *from, int row, int column,
                  bool wide)
{
    const bool turned = of_a ? A_TURNED : B_TURNED;
    const int per = columns / 8, step = THREADS / per;
    int r = threadIdx.x / per, c = threadIdx.x % per * 8;
    to += r * (columns + 8) + c;
    column += c;
    UNROLL
    for (int i = 0; i < rows / step && wide; i++) {
        int y = row + r + i * step;
        int v = turned ? column : y, w = turned ? y : column;
        copy_vector(to + i * step * (columns + 8),
                    of_a ? a_at(p, from, v, w) : b_at(p, from, v, w), from);
    }
    ONE_BY_ONE
    for (int i = 0; i < rows / step * 8 && !wide; i++) {
        int y = row + r + i / 8 * step, e = i % 8;
        int v = turned ? column + e : y, w = turned ? y : column + e;
        const T *x = of_a ? a_at(p, from, v, w) : b_at(p, from, v, w);
        to[i / 8 * step * (columns + 8) + e] = x ? *x : (T)0;
    }
}

FN void copy_stage(const product &p, const T *a, const T *b, T *to, int m,
                   int n, int k)
{
    if (A_TURNED)
        copy_tile<true, BK, BM>(p, to, a, k, m, p.a_wide);
    else
        copy_tile<true, BM, BK>(p, to, a, m, k, p.a_wide);
    if (B_TURNED)
        copy_tile<false, BN, BK>(p, to + A_TILE, b, n, k, p.b_wide);
    else
        copy_tile<false, BK, BN>(p, to + A_TILE, b, k, n, p.b_wide);
}
)
