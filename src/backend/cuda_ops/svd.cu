NB_CUDA(
/* Products of the rows of a team with each other, in g.  A thread has 4 x 4 of
 * them, and groups of threads share the columns out; what groups found is added
 * in their order. */
static __device__ __forceinline__ void multiply_rows(T *g, const mats &w, i64 b,
                                                     const team &t, i64 cols)
{
    __shared__ T xs[32][65];
    int tiles = (t.size + 3) / 4;
    int each = tiles * tiles;
    int groups = blockDim.x / each < 4 ? blockDim.x / each : 4;
    int group = threadIdx.x / each;
    int i = threadIdx.x % each / tiles * 4;
    int j = threadIdx.x % tiles * 4;
    bool works = group < groups && i <= j;
    T sum[4][4] = {};
    for (i64 j0 = 0; j0 < cols; j0 += 32) {
        for (int e = threadIdx.x; e < 32 * 64; e += blockDim.x) {
            i64 row = e / 32 < t.size ? row_of(t, e / 32) : t.n;
            bool in = row < t.n && j0 + e % 32 < cols;
            xs[e % 32][e / 32] = in ? *place(w, b, row, j0 + e % 32) : (T)0;
        }
        __syncthreads();
        for (int k = group; works && k < 32; k += groups)
            for (int r = 0; r < 4; r++)
                for (int s = 0; s < 4; s++)
                    sum[r][s] += xs[k][i + r] * xs[k][j + s];
        __syncthreads();
    }
    for (int turn = 0; turn < groups; turn++) {
        for (int e = 0; works && group == turn && e < 16; e++)
            if (i + e / 4 < t.size && j + e % 4 < t.size) {
                T *to = g + (i + e / 4) * 65 + j + e % 4;
                *to = turn ? *to + sum[e / 4][e % 4] : sum[e / 4][e % 4];
            }
        __syncthreads();
    }
    for (int e = threadIdx.x; e < t.size * t.size; e += blockDim.x)
        if (e / t.size / 4 > e % t.size / 4)
            g[e / t.size * 65 + e % t.size] = g[e % t.size * 65 + e / t.size];
    __syncthreads();
}

static __device__ __forceinline__ limits limits_of(const state &s, i64 b,
                                                   i64 cols)
{
    T least = EPS * s.number[2 * b + 1];
    limits l = {EPS * (1 + SQRT((T)cols)), least * least, true};
    return l;
}

/* Up to 64 rows, a block a matrix: turned until they are orthogonal. */
extern "C" __global__ void __launch_bounds__(1024)
svd_block(const mats w, const mats turns, i64 n, i64 cols, const state s)
{
    extern __shared__ __align__(16) char memory[];
    T *g = (T *)memory;
    T *q = g + 64 * 65;
    i64 b = blockIdx.x;
    team t = {0, 1, n, (int)(n + n % 2)};
    limits l = limits_of(s, b, cols);
    if (s.flag[b * FLAGS + BAD]) return;
    for (int turn = 0; turn < 60; turn++) {
        multiply_rows(g, w, b, t, cols);
        set_unit(q, t.size);
        __syncthreads();
        if (!sweep(g, q, t.size, l)) break;
        sweep(g, q, t.size, l);
        for (i64 j = 0; j < cols; j += 64)
            turn_rows(q, g, w, b, t, j, cols - j < 64 ? (int)(cols - j) : 64);
        if (turns.at) turn_rows(q, g, turns, b, t, 0, (int)n);
    }
}

/* The teams of a round: how to turn the rows of each. */
extern "C" __global__ void __launch_bounds__(1024)
svd_solve(const mats w, i64 n, i64 cols, int blocks, int round, int turn,
          const state s, T *turns, int *idle)
{
    extern __shared__ __align__(16) char memory[];
    T *g = (T *)memory;
    T *q = g + 64 * 65;
    int pairs = blocks / 2;
    i64 b = blockIdx.x / pairs;
    team t = team_of(n, blocks, round, blockIdx.x % pairs);
    if (is_done(s, b, turn)) return;
    multiply_rows(g, w, b, t, cols);
    turn_team(g, q, limits_of(s, b, cols), s, b, turn, turns, idle);
}

/* How long the rows are, a warp a row. */
extern "C" __global__ void __launch_bounds__(256)
svd_lengths(const mats w, i64 n, i64 cols, i64 count, T *lengths)
{
    for (i64 k = blockIdx.x * 8ll + threadIdx.x / 32; k < count * n;
         k += gridDim.x * 8ll) {
        T sum = 0;
        for (i64 j = threadIdx.x % 32; j < cols; j += 32) {
            T x = *place(w, k / n, k % n, j);
            sum += x * x;
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) lengths[k] = SQRT(sum);
    }
}

/* How many are more than rounding errors; skip: no vectors are wanted beyond
 * these.  A warp a matrix. */
extern "C" __global__ void __launch_bounds__(32)
svd_rank(const T *lengths, i64 n, i64 all, const state s, int *skip)
{
    i64 b = blockIdx.x;
    int rank = 0;
    for (i64 i = threadIdx.x; i < n; i += 32)
        rank += lengths[b * n + i] > 2 * EPS * s.number[2 * b + 1];
    for (int by = 16; by > 0; by /= 2)
        rank += __shfl_xor_sync(0xffffffffu, rank, by);
    if (threadIdx.x) return;
    s.flag[b * FLAGS + RANK] = rank;
    skip[b] = rank == all || s.flag[b * FLAGS + BAD];
}

/* The rows that count, of length one and as columns; zeros for the others. */
extern "C" __global__ void __launch_bounds__(256)
svd_basis(const mats w, const mats basis, i64 n, i64 cols, i64 count,
          const T *lengths, const int *order, const state s, const int *skip)
{
    for (i64 k = blockIdx.x * 256ll + threadIdx.x; k < count * n * cols;
         k += gridDim.x * 256ll) {
        i64 b = k / (n * cols);
        i64 i = k % (n * cols) / cols;
        i64 j = k % cols;
        i64 from = order[b * n + i];
        if (skip[b]) continue;
        bool counts = i < s.flag[b * FLAGS + RANK];
        *place(basis, b, j, i) =
            counts ? *place(w, b, from, j) / lengths[b * n + from] : (T)0;
    }
}

/* The long vectors, `all` of them: rows of w that count, then what completes
 * them; and the short ones, rows of turns. */
extern "C" __global__ void __launch_bounds__(256)
svd_store_long(const mats w, const mats rest, i64 n, i64 all, i64 cols,
               i64 count, const T *lengths, const int *order, const state s,
               const T *signs, const mats to)
{
    for (i64 k = blockIdx.x * 256ll + threadIdx.x; k < count * all * cols;
         k += gridDim.x * 256ll) {
        i64 b = k / (all * cols);
        i64 i = k % (all * cols) / cols;
        i64 j = k % cols;
        const int *flag = s.flag + b * FLAGS;
        T x = NOT;
        if (!flag[BAD] && i < flag[RANK]) {
            i64 from = order[b * n + i];
            x = *place(w, b, from, j) / lengths[b * n + from];
            x *= signs[b * n + from];
        } else if (!flag[BAD]) {
            x = *place(rest, b, j, i);
        }
        *place(to, b, i, j) = x;
    }
}

extern "C" __global__ void __launch_bounds__(256)
svd_store_short(const mats turns, i64 n, i64 count, const T *lengths,
                const int *order, const state s, const T *signs, T *values,
                const mats to)
{
    i64 each = to.at ? n * n : n;
    for (i64 k = blockIdx.x * 256ll + threadIdx.x; k < count * each;
         k += gridDim.x * 256ll) {
        i64 b = k / each;
        i64 i = to.at ? k % each / n : k % n;
        i64 j = to.at ? k % n : 0;
        i64 from = order[b * n + i];
        bool bad = s.flag[b * FLAGS + BAD];
        if (to.at)
            *place(to, b, i, j) =
                bad ? NOT : *place(turns, b, from, j) * signs[b * n + from];
        if (j) continue;
        values[b * n + i] =
            bad ? NOT : lengths[b * n + from] * s.number[2 * b];
    }
}
)
