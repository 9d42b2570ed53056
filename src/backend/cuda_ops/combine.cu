NB_CUDA(
static __device__ __forceinline__ V load(T x)
{
    return LOAD_T(x);
}

static __device__ __forceinline__ V both(V a, V b)
{
    return BOTH;
}

/* The table as it was. */
extern "C" __global__ void __launch_bounds__(256)
place_copy(const T *x, T *y, const dims all)
{
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < all.count;
         i += gridDim.x * 256ll)
        y[dims_at(all, 1, i)] = x[dims_at(all, 0, i)];
}

/* Points in the order of their places, CHUNK of them by a team of threads, side
 * by side along rows.  Those that share a place are a run, combined in their
 * order.  A run within the chunk is done; what the chunk has of others is left
 * in `parts`: of one that came from before, and of one that goes on, which begins
 * with the table's element. */
struct runs {
    dims batch, place, point, row; /* of the table, of the list */
    i64 chunks;
};

static __device__ __forceinline__ V sum_of(const runs &q, const T *from,
                                           const u32 *number, i64 s, i64 end,
                                           V sum)
{
    for (; s + 4 <= end; s += 4) {
        V x0 = load(from[dims_at(q.point, 1, number[s])]);
        V x1 = load(from[dims_at(q.point, 1, number[s + 1])]);
        V x2 = load(from[dims_at(q.point, 1, number[s + 2])]);
        V x3 = load(from[dims_at(q.point, 1, number[s + 3])]);
        sum = both(both(both(both(sum, x0), x1), x2), x3);
    }
    for (; s < end; s++)
        sum = both(sum, load(from[dims_at(q.point, 1, number[s])]));
    return sum;
}

static __device__ __forceinline__ V *part_at(const runs &q, V *parts, i64 chunk,
                                             int which, i64 r)
{
    return parts + (2 * chunk + which) * q.row.count + r;
}

extern "C" __global__ void __launch_bounds__(256)
place_rows(const T *u, T *y, const u32 *keys, const u32 *numbers, V *parts,
           const runs q, int team)
{
    i64 points = q.point.count;
    i64 chunk = blockIdx.x * (256ll / team) + threadIdx.x / team;
    if (chunk >= q.batch.count * q.chunks) return;
    i64 b = chunk / q.chunks;
    i64 begin = chunk % q.chunks * CHUNK;
    i64 end = begin + CHUNK < points ? begin + CHUNK : points;
    const u32 *key = keys + b * points;
    const u32 *number = numbers + b * points;
    for (i64 r = threadIdx.x % team + blockIdx.y * team; r < q.row.count;
         r += (i64)team * gridDim.y) {
        const T *from = u + dims_at(q.batch, 1, b) + dims_at(q.row, 1, r);
        T *to = y + dims_at(q.batch, 0, b) + dims_at(q.row, 0, r);
        for (i64 s = begin, t; s < end && key[s] < q.place.count; s = t) {
            for (t = s + 1; t < end && key[t] == key[s];)
                t++;
            bool begins = !s || key[s - 1] != key[s];
            bool ends = t == points || key[t] != key[s];
            T *at = to + dims_at(q.place, 0, key[s]);
            if (LAST && ends) *at = from[dims_at(q.point, 1, number[t - 1])];
            if (LAST) continue;
            i64 first = begins ? s : s + 1;
            V sum = load(begins ? *at : from[dims_at(q.point, 1, number[s])]);
            sum = sum_of(q, from, number, first, t, sum);
            if (begins && ends)
                *at = (T)STORE_T(sum);
            else
                *part_at(q, parts, chunk, begins, r) = sum;
        }
    }
}

/* The parts of runs that go on, joined by the chunk that they begin in. */
extern "C" __global__ void __launch_bounds__(256)
place_join(T *y, const u32 *keys, V *parts, const runs q, int team)
{
    i64 points = q.point.count;
    i64 chunk = blockIdx.x * (256ll / team) + threadIdx.x / team;
    if (chunk >= q.batch.count * q.chunks) return;
    i64 b = chunk / q.chunks;
    i64 begin = chunk % q.chunks * CHUNK;
    i64 end = begin + CHUNK;
    const u32 *key = keys + b * points;
    if (end >= points || key[end - 1] != key[end]) return;
    u32 mine = key[end];
    if (mine >= q.place.count || (begin && key[begin - 1] == mine)) return;
    T *to = y + dims_at(q.batch, 0, b) + dims_at(q.place, 0, mine);
    for (i64 r = threadIdx.x % team + blockIdx.y * team; r < q.row.count;
         r += (i64)team * gridDim.y) {
        V sum = *part_at(q, parts, chunk, 1, r);
        i64 next = chunk + 1;
        for (i64 s = end; s < points && key[s] == mine; s += CHUNK)
            sum = both(sum, *part_at(q, parts, next++, 0, r));
        to[dims_at(q.row, 0, r)] = (T)STORE_T(sum);
    }
}

/* The number of the point before that names the same place. */
extern "C" __global__ void __launch_bounds__(256)
place_prior(i64 *y, const u32 *keys, const u32 *numbers, const dims batch,
            const dims point, u32 places)
{
    i64 points = point.count;
    i64 all = batch.count * points;
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < all;
         i += gridDim.x * 256ll) {
        i64 s = i % points;
        bool follows = s && keys[i - 1] == keys[i] && keys[i] < places;
        y[i / points * points + numbers[i]] =
            follows ? (i64)numbers[i - 1] : points;
    }
}
)
