NB_CUDA(
template <int each>
FN void read_row(T *to, const T *from, int n, bool wide)
{
    if (wide && n >= each) {
        UNROLL
        for (int i = 0; i < each; i += VECTOR)
            *(vector *)(to + i) = *(const vector *)(from + i);
        return;
    }
    UNROLL
    for (int i = 0; i < each; i++)
        to[i] = i < n ? from[i] : (T)0;
}

FN void read_tiles(const product &p, const T *a, const T *b, T *to_a, T *to_b,
                   int m, int n, int k)
{
    int r;
    int c;
    share<A_EACH, A_TURNED ? BM : BK>(r, c);
    int down = A_TURNED ? p.k - k : p.m - m, across = A_TURNED ? p.m - m : p.k - k;
    a += A_TURNED ? (k + r) * p.a_leap + m + c : (m + r) * p.a_leap + k + c;
    read_row<A_EACH>(to_a, r < down ? a : (const T *)p.a,
                     r < down ? across - c : 0, A_WIDE);
    share<B_EACH, B_TURNED ? BK : BN>(r, c);
    down = B_TURNED ? p.n - n : p.k - k, across = B_TURNED ? p.k - k : p.n - n;
    b += B_TURNED ? (n + r) * p.b_leap + k + c : (k + r) * p.b_leap + n + c;
    read_row<B_EACH>(to_b, r < down ? b : (const T *)p.b,
                     r < down ? across - c : 0, B_WIDE);
}
)
