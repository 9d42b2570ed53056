NB_CUDA(
static __device__ __forceinline__ void load_team(T *g, const mats &a, i64 b,
                                                 const team &t)
{
    for (int e = threadIdx.x; e < t.size * t.size; e += blockDim.x) {
        i64 i = row_of(t, e / t.size);
        i64 j = row_of(t, e % t.size);
        g[e / t.size * 65 + e % t.size] =
            i < t.n && j < t.n ? *place(a, b, i, j) : (T)0;
    }
}

/* A matrix of up to 64 rows, a block a matrix: turned until it is diagonal. */
extern "C" __global__ void __launch_bounds__(1024)
eigh_block(const mats a, i64 n, T *values, const mats vectors)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ int rank[64];
    __shared__ T sign[64];
    T *g = (T *)memory;
    T *q = g + 64 * 65;
    i64 b = blockIdx.x;
    team t = {0, 1, n, (int)(n + n % 2)};
    T top = 0;
    T sum = 0;
    load_team(g, a, b, t);
    set_unit(q, t.size);
    __syncthreads();
    for (int e = threadIdx.x; e < t.size * t.size; e += blockDim.x)
        top = larger(top, ABS(g[e / t.size * 65 + e % t.size]));
    top = block_largest(top);
    T by = power_of(top);
    bool bad = top - top != 0;
    for (int e = threadIdx.x; e < t.size * t.size; e += blockDim.x) {
        T x = g[e / t.size * 65 + e % t.size] / by;
        g[e / t.size * 65 + e % t.size] = x;
        sum += x * x;
    }
    limits l = {EPS / (T)n * SQRT(block_sum(sum)), 0, false};
    for (int turn = 0; !bad && turn < 60; turn++)
        if (!sweep(g, q, t.size, l)) break;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        T mine = g[i * 65 + i];
        int before = 0;
        for (int j = 0; j < n; j++) {
            T other = g[j * 65 + j];
            before += other < mine || (other == mine && j < i);
        }
        T most = 0;
        T face = 1;
        for (int j = 0; j < n; j++)
            most = larger(most, ABS(q[i * 65 + j]));
        for (int j = (int)n - 1; j >= 0; j--)
            if (ABS(q[i * 65 + j]) >= (T)NEARLY * most)
                face = q[i * 65 + j] < 0 ? -1 : 1;
        rank[i] = bad ? i : before;
        sign[i] = face;
        values[b * n + rank[i]] = bad ? NOT : mine * by;
    }
    __syncthreads();
    for (int e = threadIdx.x; vectors.at && e < n * n; e += blockDim.x)
        *place(vectors, b, e % n, rank[e / n]) =
            bad ? NOT : q[e / n * 65 + e % n] * sign[e / n];
}

/* The teams of a round: what each has of a made smaller off the diagonal, and
 * how its rows were turned for that. */
extern "C" __global__ void __launch_bounds__(1024)
eigh_solve(const mats a, i64 n, int blocks, int round, int turn, const state s,
           T *turns, int *idle)
{
    extern __shared__ __align__(16) char memory[];
    T *g = (T *)memory;
    T *q = g + 64 * 65;
    int pairs = blocks / 2;
    i64 b = blockIdx.x / pairs;
    team t = team_of(n, blocks, round, blockIdx.x % pairs);
    if (is_done(s, b, turn)) return;
    load_team(g, a, b, t);
    limits l = {EPS / (T)n * s.number[2 * b + 1], 0, false};
    if (!turn_team(g, q, l, s, b, turn, turns, idle)) return;
    for (int e = threadIdx.x; e < 4096; e += blockDim.x) {
        i64 i = row_of(t, e / 64);
        i64 j = row_of(t, e % 64);
        if (i < n && j < n) *place(a, b, i, j) = g[e / 64 * 65 + e % 64];
    }
}

/* q x, or x q^T, in the place of x. */
static __device__ __forceinline__ void times(const T *q, T *x, bool right)
{
    int tx = threadIdx.x % 16;
    int ty = threadIdx.x / 16;
    T sum[4][4] = {};
    for (int k = 0; k < 64; k++)
        for (int r = 0; r < 4; r++) {
            int i = (ty + 16 * r) * 65;
            T f = right ? x[i + k] : q[i + k];
            for (int s = 0; s < 4; s++) {
                int j = tx + 16 * s;
                sum[r][s] += f * (right ? q[j * 65 + k] : x[k * 65 + j]);
            }
        }
    __syncthreads();
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++)
            x[(ty + 16 * r) * 65 + tx + 16 * s] = sum[r][s];
}

/* What two teams of a round have in common, rows of one and columns of the
 * other; the other way round it is the same. */
extern "C" __global__ void __launch_bounds__(256)
eigh_turn(const mats a, i64 n, int blocks, int round, int turn, const state s,
          const T *turns, const int *idle)
{
    extern __shared__ __align__(16) char memory[];
    T *q = (T *)memory;
    T *x = q + 64 * 65;
    int pairs = blocks / 2;
    int down = (int)(blockIdx.x / pairs % pairs);
    int across = (int)(blockIdx.x % pairs);
    i64 b = blockIdx.x / pairs / pairs;
    const int *off = idle + b * pairs;
    if (down >= across || is_done(s, b, turn)) return;
    if (off[down] && off[across]) return;
    team p = team_of(n, blocks, round, down);
    team r = team_of(n, blocks, round, across);
    load_turn(q, turns + (b * pairs + down) * 4096, off[down]);
    for (int e = threadIdx.x; e < 4096; e += 256) {
        i64 i = row_of(p, e / 64);
        i64 j = row_of(r, e % 64);
        x[e / 64 * 65 + e % 64] =
            i < n && j < n ? *place(a, b, i, j) : (T)0;
    }
    __syncthreads();
    times(q, x, false);
    __syncthreads();
    load_turn(q, turns + (b * pairs + across) * 4096, off[across]);
    __syncthreads();
    times(q, x, true);
    __syncthreads();
    for (int e = threadIdx.x; e < 4096; e += 256) {
        i64 i = row_of(p, e / 64);
        i64 j = row_of(r, e % 64);
        if (i < n && j < n) *place(a, b, i, j) = x[e / 64 * 65 + e % 64];
    }
    for (int e = threadIdx.x; e < 4096; e += 256) {
        i64 i = row_of(p, e % 64);
        i64 j = row_of(r, e / 64);
        if (i < n && j < n) *place(a, b, j, i) = x[e % 64 * 65 + e / 64];
    }
}

/* The values in their order, and the rows of `turns` as columns. */
extern "C" __global__ void __launch_bounds__(256)
eigh_store(const mats a, const mats turns, i64 n, i64 count, const state s,
           const int *order, const T *signs, T *values, const mats vectors)
{
    i64 each = vectors.at ? n * n : n;
    for (i64 k = blockIdx.x * 256ll + threadIdx.x; k < count * each;
         k += gridDim.x * 256ll) {
        i64 b = k / each;
        i64 i = k % each / n;
        i64 j = k % n;
        i64 from = order[b * n + j];
        bool bad = s.flag[b * FLAGS + BAD];
        if (vectors.at)
            *place(vectors, b, i, j) =
                bad ? NOT : *place(turns, b, from, i) * signs[b * n + from];
        if (i) continue;
        values[b * n + j] =
            bad ? NOT : *place(a, b, from, from) * s.number[2 * b];
    }
}
)
