NB_CUDA(
struct line {
    i64 size, taps, places, stride, dilation, spread, before;
};

/* Terms are cut by lines of taps: those of the last line, at one tap of the
 * others and one channel, are never apart. */
struct conv {
    const X *x;
    const X *filter;
    X *y;
    V *sums;
    i64 count, images, groups, in, out, parts, each;
    i64 xs[5];
    i64 fs[5];
    line l[3];
    dims lanes;
};

/* One element of y: where x and the filter of its group and channel begin, and
 * its places. */
struct place {
    const X *x;
    const X *filter;
    I at[3];
};

static __device__ __forceinline__ place place_of(const conv &c, I i)
{
    place p;
    I out = i % (I)c.out;
    i /= (I)c.out;
    I group = i % (I)c.groups;
    i /= (I)c.groups;
    for (int d = 2; d >= 0; d--) {
        I n = (I)c.l[d].places;
        p.at[d] = n == 1 ? 0 : i % n;
        i = n == 1 ? i : i / n;
    }
    I image = i % (I)c.images;
    I lane = i / (I)c.images;
    p.x = c.x + dims_at(c.lanes, 0, lane) + image * c.xs[0] +
          group * c.in * c.xs[4];
    p.filter = c.filter + dims_at(c.lanes, 1, lane) +
               (group * c.out + out) * c.fs[4];
    return p;
}

/* Where a tap reads along a line; -1 for zero. */
static __device__ __forceinline__ i64 read_at(const line &l, I place, I tap)
{
    i64 at = place * l.stride + tap * l.dilation - l.before;
    if (l.spread > 1) {
        if (at % l.spread) return -1;
        at /= l.spread;
    }
    return at < l.size ? at : -1;
}

static __device__ __forceinline__ V sum_of(const conv &c, const place &p,
                                           I from, I to)
{
    V sum = 0;
    for (I row = from; row < to; row++) {
        I left = row;
        I second = left % (I)c.l[1].taps;
        left /= (I)c.l[1].taps;
        I first = left % (I)c.l[0].taps;
        I in = left / (I)c.l[0].taps;
        i64 a = read_at(c.l[0], p.at[0], first);
        i64 b = read_at(c.l[1], p.at[1], second);
        if (a < 0 || b < 0) continue;
        const X *x = p.x + a * c.xs[1] + b * c.xs[2] + in * c.xs[4];
        const X *f = p.filter + first * c.fs[0] + second * c.fs[1] +
                     in * c.fs[3];
        for (I tap = 0; tap < (I)c.l[2].taps; tap++) {
            i64 at = read_at(c.l[2], p.at[2], tap);
            if (at >= 0) sum += (V)LOAD_X(x[at * c.xs[3]]) * (V)LOAD_X(f[tap * c.fs[2]]);
        }
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(256) conv_each(const conv c)
{
    I rows = (I)(c.in * c.l[0].taps * c.l[1].taps);
    for (I k = (I)blockIdx.x * 256 + (I)threadIdx.x; k < (I)(c.count * c.parts);
         k += (I)gridDim.x * 256) {
        I part = k / (I)c.count;
        I i = k % (I)c.count;
        I from = part * (I)c.each;
        I to = rows < from + (I)c.each ? rows : from + (I)c.each;
        V sum = sum_of(c, place_of(c, i), from, to);
        if (c.parts > 1)
            c.sums[k] = sum;
        else
            c.y[i] = (X)STORE_X(sum);
    }
}

extern "C" __global__ void __launch_bounds__(256) conv_add(const conv c)
{
    for (I i = (I)blockIdx.x * 256 + (I)threadIdx.x; i < (I)c.count;
         i += (I)gridDim.x * 256) {
        V sum = c.sums[i];
        for (int part = 1; part < (int)c.parts; part++)
            sum += c.sums[part * c.count + i];
        c.y[i] = (X)STORE_X(sum);
    }
}
)
