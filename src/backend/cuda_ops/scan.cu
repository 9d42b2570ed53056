NB_CUDA(
/* What a run of elements does to a total: it becomes f total + x; of sums and
 * products only x is used.  No factor leaves a total of nothing as it is, also
 * where it is infinite. */
struct part {
    V f;
    V x;
};

static __device__ __forceinline__ part nothing(void)
{
    part p;
    p.f = (V)1;
    p.x = (V)START;
    return p;
}

static __device__ __forceinline__ V times(V f, V x)
{
    return x == (V)0 ? (V)0 : f * x;
}

static __device__ __forceinline__ part join(part a, part b)
{
    part p;
    p.f = LINEAR ? a.f * b.f : (V)1;
    p.x = LINEAR ? times(b.f, a.x) + b.x : PRODUCT ? a.x * b.x : a.x + b.x;
    return p;
}

struct lines {
    dims at; /* operands: x, factors, y */
    i64 n, chunk, chunks;
    i64 step[3];
    i64 reverse, exclusive;
};

struct line {
    const X *x;
    const F *f;
    Y *y;
};

static __device__ __forceinline__ line line_at(const lines &l, const X *x,
                                               const F *f, Y *y, i64 k)
{
    line r;
    r.x = x + dims_at(l.at, 0, k);
    r.f = f + dims_at(l.at, 1, k);
    r.y = y + dims_at(l.at, 2, k);
    return r;
}

/* Element i in the order of the scan; before the first there is nothing for a
 * factor to multiply. */
static __device__ __forceinline__ part element(const lines &l, const line &r,
                                               i64 i)
{
    part p = nothing();
    i64 at = l.reverse ? l.n - 1 - i : i;
    if (i >= l.n) return p;
    p.x = (V)LOAD_X(r.x[at * l.step[0]]);
    if (LINEAR) p.f = i ? (V)LOAD_F(r.f[at * l.step[1]]) : (V)0;
    return p;
}

static __device__ __forceinline__ void store(const lines &l, const line &r,
                                             i64 i, V before, V total)
{
    i64 at = l.reverse ? l.n - 1 - i : i;
    if (i < l.n) r.y[at * l.step[2]] = (Y)STORE_Y(l.exclusive ? before : total);
}

/* A thread a line, many side by side. */
extern "C" __global__ void __launch_bounds__(256)
scan_lines(const lines l, const X *x, const F *f, Y *y)
{
    for (i64 k = blockIdx.x * 256ll + threadIdx.x; k < l.at.count;
         k += gridDim.x * 256ll) {
        line r = line_at(l, x, f, y, k);
        V total = (V)START;
        for (i64 i = 0; i < l.n; i++) {
            part p = element(l, r, i);
            V before = total;
            total = LINEAR    ? times(p.f, total) + p.x
                    : PRODUCT ? total * p.x
                              : total + p.x;
            store(l, r, i, before, total);
        }
    }
}

/* What is before each thread of the block, and all of it. */
static __device__ __forceinline__ part join_block(part mine, part *all,
                                                  part *room)
{
    int lane = threadIdx.x % 32;
    int warp = threadIdx.x / 32;
    part sum = mine;
    for (int by = 1; by < 32; by *= 2) {
        part other;
        other.f = __shfl_up_sync(0xffffffffu, sum.f, by);
        other.x = __shfl_up_sync(0xffffffffu, sum.x, by);
        if (lane >= by) sum = join(other, sum);
    }
    if (lane == 31) room[warp] = sum;
    part before;
    before.f = __shfl_up_sync(0xffffffffu, sum.f, 1);
    before.x = __shfl_up_sync(0xffffffffu, sum.x, 1);
    if (lane == 0) before = nothing();
    __syncthreads();
    part first = nothing();
    part whole = nothing();
    for (int w = 0; w < 8; w++) {
        if (w == warp) first = whole;
        whole = join(whole, room[w]);
    }
    __syncthreads();
    *all = whole;
    return join(first, before);
}

/* A block a chunk of a line, 256 threads with eight elements each at a time. */
static __device__ __forceinline__ part run_chunk(const lines &l, const line &r,
                                                 i64 from, i64 to, part total,
                                                 bool writes)
{
    __shared__ part room[8];
    for (i64 at = from; at < to; at += 2048) {
        part p[8];
        part mine = nothing();
        part all;
        i64 i = at + threadIdx.x * 8;
        for (int k = 0; k < 8; k++) {
            p[k] = i + k < to ? element(l, r, i + k) : nothing();
            mine = join(mine, p[k]);
        }
        part sum = join(total, join_block(mine, &all, room));
        for (int k = 0; writes && k < 8; k++) {
            part next = join(sum, p[k]);
            if (i + k < to) store(l, r, i + k, sum.x, next.x);
            sum = next;
        }
        total = join(total, all);
    }
    return total;
}

extern "C" __global__ void __launch_bounds__(256)
scan_totals(const lines l, const X *x, const F *f, Y *y, part *parts)
{
    i64 c = blockIdx.x % l.chunks;
    line r = line_at(l, x, f, y, blockIdx.x / l.chunks);
    i64 to = (c + 1) * l.chunk < l.n ? (c + 1) * l.chunk : l.n;
    part total = run_chunk(l, r, c * l.chunk, to, nothing(), false);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(256)
scan_chunks(const lines l, const X *x, const F *f, Y *y, const part *parts)
{
    i64 c = blockIdx.x % l.chunks;
    line r = line_at(l, x, f, y, blockIdx.x / l.chunks);
    i64 to = (c + 1) * l.chunk < l.n ? (c + 1) * l.chunk : l.n;
    part before = nothing();
    for (i64 k = 0; k < c; k++)
        before = join(before, parts[blockIdx.x - c + k]);
    run_chunk(l, r, c * l.chunk, to, before, true);
}
)
