NB_CUDA(
struct product {
    const void *a;
    const void *b;
    void *c;
    const void *bias;
    const void *add;
    void *kept;
    i64 a_leap;
    i64 b_leap;
    i64 c_leap;
    int m;
    int n;
    int k;
    int nouter;
    double scale;
    i64 size[OUTER];
    i64 a_step[OUTER];
    i64 b_step[OUTER];
    i64 c_step[OUTER];
};

struct outer {
    i64 a;
    i64 b;
    i64 c;
};

FN int k_from(const product &)
{
    return 0;
}

FN int k_to(const product &p)
{
    return p.k;
}

/* Where matrices number `left` begin. */
FN outer outer_at(const product &p, i64 left)
{
    outer at = {0, 0, 0};
    for (int i = p.nouter - 1; i >= 0; i--) {
        i64 x = left % p.size[i];
        left /= p.size[i];
        at.a += x * p.a_step[i];
        at.b += x * p.b_step[i];
        at.c += x * p.c_step[i];
    }
    return at;
}

FN W gelu(W x)
{
    W u = (W)0.7978845608028654 * (x + (W)0.044715 * x * x * x);
    return (W)0.5 * x * (1 + tanh(u));
}

FN W gelu_slope(W x)
{
    W u = (W)0.7978845608028654 * (x + (W)0.044715 * x * x * x), t = tanh(u);
    W rise = (W)0.7978845608028654 * (1 + (W)0.134145 * x * x);
    return (W)0.5 * (1 + t) + (W)0.5 * x * (1 - t * t) * rise;
}

/* What becomes of a sum at a column of C, `at` elements into it. */
FN W end_of(const product &p, i64 at, int column, W sum)
{
    W x = (W)p.scale * sum;
    if (ADDS) x += load_c(((const C *)p.add)[at]);
    if (BIAS) x += load_c(((const C *)p.bias)[column]);
    if (END == 1) return x > 0 ? x : (W)0;
    if (END == 2 && KEEPS) ((C *)p.kept)[at] = store_c(x);
    if (END == 2) return gelu(x);
    if (END == 3) return x * gelu_slope(load_c(((const C *)p.kept)[at]));
    return x;
}

/* Where a row of C begins; it may be none. */
struct place {
    i64 at;
    bool is;
};

FN place place_of(const product &p, const outer &to, int row)
{
    return {to.c + row * p.c_leap, row < p.m};
}

/* Two neighbours of a row. */
FN void put_two(const product &p, const place &to, int column, W x, W y)
{
    i64 at = to.at + column;
    if (!to.is || column >= p.n) return;
    if (column + 1 == p.n) {
        ((C *)p.c)[at] = store_c(end_of(p, at, column, x));
        return;
    }
    pair two = {store_c(end_of(p, at, column, x)),
                store_c(end_of(p, at + 1, column + 1, y))};
    if (C_WIDE) {
        *(pair *)((C *)p.c + at) = two;
        return;
    }
    ((C *)p.c)[at] = two.x;
    ((C *)p.c)[at + 1] = two.y;
}
)
