NB_CUDA(
/* What a thread has of a tile of A, or of B: `each` of a row. */
template <bool of_a, int each>
FN void read_row(const product &p, T *to, const T *from, int row, int column,
                 bool wide)
{
    const bool turned = of_a ? A_TURNED : B_TURNED;
    UNROLL
    for (int i = 0; i < each && wide; i += VECTOR) {
        int v = turned ? column + i : row, w = turned ? row : column + i;
        const T *x = of_a ? a_at(p, from, v, w) : b_at(p, from, v, w);
        *(vector *)(to + i) = x ? *(const vector *)x : vector();
    }
    UNROLL
    for (int i = 0; i < each && !wide; i++) {
        int v = turned ? column + i : row, w = turned ? row : column + i;
        const T *x = of_a ? a_at(p, from, v, w) : b_at(p, from, v, w);
        to[i] = x ? *x : (T)0;
    }
}

FN void read_tiles(const product &p, const T *a, const T *b, T *to_a, T *to_b,
                   int m, int n, int k)
{
    int r;
    int c;
    share<A_EACH, A_TURNED ? BM : BK>(r, c);
    read_row<true, A_EACH>(p, to_a, a, r + (A_TURNED ? k : m),
                           c + (A_TURNED ? m : k), p.a_wide);
    share<B_EACH, B_TURNED ? BK : BN>(r, c);
    read_row<false, B_EACH>(p, to_b, b, r + (B_TURNED ? n : k),
                            c + (B_TURNED ? k : n), p.b_wide);
}
)
