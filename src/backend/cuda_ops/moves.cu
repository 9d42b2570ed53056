NB_CUDA(
typedef long long i64;

struct move {
    char *to;
    const char *from;
    i64 to_step, from_step, unit, n, count, tiles;
    i64 size[6], to_by[6], from_by[6];
};

struct head {
    i64 count;
    unsigned ticket, unused;
};

struct work {
    move m[12];
    i64 n;
    head *first;
    const char *flag;
    i64 by, until;
    unsigned long long yes, no;
};

struct alignas(16) wide {
    i64 a, b;
};

/* Elements of a type, numbered by an integer that is wide enough. */
template <typename T, typename I>
__device__ void go(const move &m, i64 count)
{
    char *to = m.to + count * m.to_step;
    const char *from = m.from + count * m.from_step;
    I step = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)m.count; i += step) {
        I rest = i;
        i64 there = 0;
        i64 here = 0;
        for (int d = (int)m.n - 1; d > 0; d--) {
            I size = (I)m.size[d];
            I at = rest % size;
            rest /= size;
            there += (i64)at * m.to_by[d];
            here += (i64)at * m.from_by[d];
        }
        there += (i64)rest * m.to_by[0];
        here += (i64)rest * m.from_by[0];
        *(T *)(to + there) = *(const T *)(from + here);
    }
}

/* Tiles of the last two dims.  The last lies in order there, the one before
 * here: a tile is read along the one and written along the other. */
template <typename T>
__device__ void turn(const move &m, i64 count, T *tile)
{
    enum { SIDE = 32, ROW = SIDE + 1 };
    int x = threadIdx.x % SIDE;
    int first = threadIdx.x / SIDE;
    int last = (int)m.n - 1;
    i64 height = m.size[last - 1];
    i64 width = m.size[last];
    i64 across = (width + SIDE - 1) / SIDE;
    i64 down = (height + SIDE - 1) / SIDE;
    for (i64 at = blockIdx.x; at < m.tiles; at += gridDim.x) {
        i64 column = at % across * SIDE;
        i64 row = at / across % down * SIDE;
        i64 rest = at / across / down;
        char *to = m.to + count * m.to_step;
        const char *from = m.from + count * m.from_step;
        for (int d = last - 2; d >= 0; d--) {
            i64 step = rest % m.size[d];
            rest /= m.size[d];
            to += step * m.to_by[d];
            from += step * m.from_by[d];
        }
        for (int y = first; y < SIDE; y += 256 / SIDE)
            if (row + x < height && column + y < width)
                tile[y * ROW + x] = *(const T *)(from + (row + x) * m.unit +
                                                 (column + y) *
                                                     m.from_by[last]);
        __syncthreads();
        for (int y = first; y < SIDE; y += 256 / SIDE)
            if (row + y < height && column + x < width)
                *(T *)(to + (row + y) * m.to_by[last - 1] +
                       (column + x) * m.unit) = tile[x * ROW + y];
        __syncthreads();
    }
}

template <typename T>
__device__ void all(const move &m, i64 count)
{
    if (m.count < 1 << 30)
        go<T, unsigned>(m, count);
    else
        go<T, unsigned long long>(m, count);
}

template <typename T>
__device__ void either(const move &m, i64 count, i64 *room)
{
    if (m.tiles)
        turn<T>(m, count, (T *)room);
    else
        all<T>(m, count);
}

extern "C" __global__ void __launch_bounds__(256) move_all(const work w)
{
    __shared__ i64 room[32 * 33];
    i64 count = w.first ? w.first->count : 0;
    for (int k = 0; k < w.n; k++) {
        const move &m = w.m[k];
        if (m.unit == 16)
            all<wide>(m, count);
        else if (m.unit == 8)
            either<i64>(m, count, room);
        else if (m.unit == 4)
            either<int>(m, count, room);
        else if (m.unit == 2)
            either<short>(m, count, room);
        else
            either<char>(m, count, room);
    }
    if (!w.first) return;
    __syncthreads();
    if (threadIdx.x) return;
    __threadfence();
    unsigned last = gridDim.x - 1;
    if (atomicInc(&w.first->ticket, last) != last) return;
    count += w.by;
    w.first->count = count;
    bool on = (!w.flag || *w.flag) && count < w.until;
    if (w.yes) SET(w.yes, on);
    if (w.no) SET(w.no, !on);
}
)
