NB_CUDA(
/* Convolution as a product: rows of A are the places of all images, terms the
 * taps and channels in, columns of B the channels out.  A_TURNED, images run
 * along rows, else places do; IN_RUNS, channels along terms, else taps.  Lines
 * before FIRST are trivial.  Blocks along y have a part of the terms each. */
struct digit {
    u32 size;
    u32 mul;
    u32 shift;
};

struct line {
    int size;
    int stride;
    int dilation;
    int before;
};

struct product {
    const T *a;
    const T *b;
    C *c;
    W *sums;
    i64 a_stride[5];
    i64 b_stride[5];
    i64 c_stride[4];
    int m;
    int n;
    int k;
    int parts;
    int each;
    int a_wide;
    int b_wide;
    int c_wide;
    digit row[3];
    digit term[3];
    line l[3];
    dims outside;
};

struct outer {
    i64 a;
    i64 b;
    i64 c;
    i64 sums;
};

FN outer outer_at(const product &p, i64 i)
{
    i64 sums = (blockIdx.y * p.outside.count + i) * p.m;
    return {dims_at(p.outside, 0, i), dims_at(p.outside, 1, i),
            dims_at(p.outside, 2, i), sums};
}

FN int k_from(const product &p)
{
    return blockIdx.y * p.each;
}

FN int k_to(const product &p)
{
    int to = k_from(p) + p.each;
    return to < p.k ? to : p.k;
}

FN int divide(int x, const digit &d, int &rest)
{
    int q = d.mul ? (int)(__umulhi((u32)x, d.mul) >> d.shift) : x;
    rest = x - q * (int)d.size;
    return q;
}

/* Image and places; channel and taps. */
struct digits {
    int other;
    int line[3];
};

FN digits digits_of(int x, const digit *d, bool other_runs)
{
    digits to;
    if (other_runs) x = divide(x, d[0], to.other);
    for (int k = 2; k > FIRST; k--)
        x = divide(x, d[2 - k + other_runs], to.line[k]);
    if (other_runs)
        to.line[FIRST] = x;
    else
        to.other = divide(x, d[2 - FIRST], to.line[FIRST]);
    return to;
}

/* The element of x at a row and a term; NULL for zero. */
FN const T *a_at(const product &p, const T *a, int m, int k)
{
    if (m >= p.m || k >= k_to(p)) return 0;
    digits row = digits_of(m, p.row, A_TURNED), term = digits_of(k, p.term, IN_RUNS);
    i64 at = row.other * p.a_stride[0] + term.other * p.a_stride[4];
    UNROLL
    for (int d = FIRST; d < 3; d++) {
        int place = row.line[d] * p.l[d].stride + term.line[d] * p.l[d].dilation -
                    p.l[d].before;
        if ((u32)place >= (u32)p.l[d].size) return 0;
        at += place * p.a_stride[1 + d];
    }
    return a + at;
}

FN const T *b_at(const product &p, const T *b, int k, int n)
{
    if (n >= p.n || k >= k_to(p)) return 0;
    digits term = digits_of(k, p.term, IN_RUNS);
    i64 at = term.other * p.b_stride[3] + n * p.b_stride[4];
    UNROLL
    for (int d = FIRST; d < 3; d++)
        at += term.line[d] * p.b_stride[d];
    return b + at;
}

FN i64 c_at(const product &p, int m)
{
    digits row = digits_of(m, p.row, A_TURNED);
    i64 at = row.other * p.c_stride[0];
    UNROLL
    for (int d = FIRST; d < 3; d++)
        at += row.line[d] * p.c_stride[1 + d];
    return at;
}

/* Where a row of C, or of the sums of a part, begins; NULL: nowhere. */
struct place {
    C *c;
    W *sums;
};

FN place place_of(const product &p, const outer &to, int row)
{
    place at = {0, 0};
    if (row >= p.m) return at;
    if (PARTS)
        at.sums = p.sums + (to.sums + row) * p.n;
    else
        at.c = p.c + to.c + c_at(p, row);
    return at;
}

FN void put_two(const product &p, const place &to, int column, W x, W y)
{
    if ((!to.c && !to.sums) || column >= p.n) return;
    bool both = column + 1 < p.n;
    if (PARTS) {
        to.sums[column] = x;
        if (both) to.sums[column + 1] = y;
        return;
    }
    pair two = {store_c(x), store_c(y)};
    if (both && p.c_wide) {
        *(pair *)(to.c + column) = two;
        return;
    }
    to.c[column] = two.x;
    if (both) to.c[column + 1] = two.y;
}
)
