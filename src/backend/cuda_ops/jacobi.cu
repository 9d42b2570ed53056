NB_CUDA(
/* Rows of a matrix that are turned together: 32 of each of two of its blocks,
 * or its first ones.  Those beyond its last are nothing, and stay so. */
struct team {
    i64 first, second, n;
    int size; /* even */
};

static __device__ __forceinline__ i64 row_of(const team &t, int k)
{
    return k < 32 ? t.first * 32 + k : t.second * 32 + k - 32;
}

/* Team k of a round in which every block meets another; in blocks - 1 rounds
 * each meets all. */
static __device__ __forceinline__ team team_of(i64 n, int blocks, int round,
                                               int k)
{
    team t;
    int others = blocks - 1;
    t.first = k ? (round + k) % others : others;
    t.second = (round - k + others) % others;
    t.n = n;
    t.size = 64;
    return t;
}

/* What is so small that nothing is to be turned for it: of the whole, or of two
 * vectors that are longer than noise. */
struct limits {
    T close, noise;
    bool relative;
};

static __device__ __forceinline__ bool is_small(const limits &l, T p, T r, T x)
{
    if (!l.relative) return !(ABS(x) > l.close);
    if (!(p > l.noise) || !(r > l.noise)) return true;
    return !(ABS(x) > l.close * SQRT(p) * SQRT(r));
}

/* x and y turned by an angle of that sine; half: the tangent of half of it.  So
 * written no rounding makes them longer on the whole, as that of a cosine near
 * one would. */
static __device__ __forceinline__ void rotate(T *x, T *y, T sine, T half)
{
    T u = *x;
    T v = *y;
    *x = u - sine * (v + half * u);
    *y = v + sine * (u - half * v);
}

/* Two rows, where they begin, and how they are turned; 0: not at all. */
struct __align__(16) pair {
    T sine, half;
    int i, j;
};

/* Rows i and j, as they are given.  t, the tangent of the angle, solves
 * t^2 + t (r - p) / x = 1. */
static __device__ __forceinline__ pair pair_of(const T *g, int i, int j,
                                               const limits &l)
{
    T p = g[i * 65 + i];
    T r = g[j * 65 + j];
    T x = g[i * 65 + j];
    pair out = {0, 0, i * 65, j * 65};
    if (is_small(l, p, r, x)) return out;
    T d = r - p;
    T t = 2 * ABS(x) / (ABS(d) + SQRT(d * d + 4 * x * x));
    if (!(t <= 1)) t = 1;
    if ((d < 0) != (x < 0)) t = -t;
    out.half = t / (1 + SQRT(1 + t * t));
    out.sine = 2 * out.half / (1 + out.half * out.half);
    return out;
}

/* Where two pairs of rows meet as rows and columns, in both places. */
static __device__ __forceinline__ void turn_both(T *g, const pair &a,
                                                 const pair &b)
{
    int i = a.i / 65;
    int j = a.j / 65;
    int u = b.i / 65;
    int v = b.j / 65;
    T iu = g[a.i + u];
    T iv = g[a.i + v];
    T ju = g[a.j + u];
    T jv = g[a.j + v];
    rotate(&iu, &ju, a.sine, a.half);
    rotate(&iv, &jv, a.sine, a.half);
    rotate(&iu, &iv, b.sine, b.half);
    rotate(&ju, &jv, b.sine, b.half);
    g[a.i + u] = iu;
    g[a.i + v] = iv;
    g[a.j + u] = ju;
    g[a.j + v] = jv;
    g[b.i + i] = iu;
    g[b.j + i] = iv;
    g[b.i + j] = ju;
    g[b.j + j] = jv;
}

/* Where a pair meets itself nothing is left. */
static __device__ __forceinline__ void turn_own(T *g, const pair &a)
{
    T *p = g + a.i + a.i / 65;
    T *r = g + a.j + a.j / 65;
    T x = g[a.i + a.j / 65];
    T t = 2 * a.half / (1 - a.half * a.half);
    *p -= t * x;
    *r += t * x;
    g[a.i + a.j / 65] = 0;
    g[a.j + a.i / 65] = 0;
}

/* All pairs of rows and columns of symmetric g once, half of them at a time:
 * turned so that where they meet nothing is left; q's rows with them.  Whether
 * there was something to do, for all threads. */
static __device__ __forceinline__ bool sweep(T *g, T *q, int n,
                                             const limits &l)
{
    __shared__ pair pairs[32];
    int half = n / 2;
    int others = n - 1;
    int ever = 0;
    for (int round = 0; round < others; round++) {
        int k = threadIdx.x;
        int turns = 0;
        if (k < half) {
            pair mine = pair_of(g, k ? (round + k) % others : others,
                                (round - k + others) % others, l);
            pairs[k] = mine;
            turns = mine.sine != 0;
        }
        if (!__syncthreads_or(turns)) continue;
        ever = 1;
        for (int e = threadIdx.x; e < half * half; e += blockDim.x) {
            if (e / half > e % half) continue;
            pair a = pairs[e / half];
            pair b = pairs[e % half];
            if (e / half == e % half)
                turn_own(g, a);
            else if (a.sine != 0 || b.sine != 0)
                turn_both(g, a, b);
        }
        for (int e = threadIdx.x; e < half * n; e += blockDim.x) {
            pair a = pairs[e / n];
            if (a.sine != 0)
                rotate(q + a.i + e % n, q + a.j + e % n, a.sine, a.half);
        }
        __syncthreads();
    }
    return ever;
}

static __device__ __forceinline__ void set_unit(T *q, int n)
{
    for (int e = threadIdx.x; e < n * n; e += blockDim.x)
        q[e / n * 65 + e % n] = e / n == e % n;
}

/* The power of two next below x, so that x over it is near one. */
static __device__ __forceinline__ T power_of(T x)
{
    T p = POWER(x);
    return p > 0 ? p : LEAST;
}

/* Per matrix: whether it is not finite; then for every sweep whether something
 * was turned.  And as numbers: what it is divided by, its norm after that. */
struct state {
    int *flag;
    T *number;
};

enum { BAD, RANK, TURNED, FLAGS = 32 };

static __device__ __forceinline__ bool is_done(const state &s, i64 b, int turn)
{
    const int *flag = s.flag + b * FLAGS;
    return flag[BAD] || (turn > 0 && !flag[TURNED + turn - 1]);
}

/* What a team has in g made smaller off the diagonal, and in `turns` how its
 * rows were turned for that; whether they were, for all threads. */
static __device__ __forceinline__ bool turn_team(T *g, T *q, const limits &l,
                                                 const state &s, i64 b,
                                                 int turn, T *turns, int *idle)
{
    set_unit(q, 64);
    __syncthreads();
    bool turned = sweep(g, q, 64, l);
    if (turned) sweep(g, q, 64, l);
    if (threadIdx.x == 0) idle[blockIdx.x] = !turned;
    if (!turned) return false;
    if (threadIdx.x == 0) s.flag[b * FLAGS + TURNED + turn] = 1;
    for (int e = threadIdx.x; e < 4096; e += blockDim.x)
        turns[blockIdx.x * 4096ll + e] = q[e / 64 * 65 + e % 64];
    return true;
}

static __device__ __forceinline__ void load_turn(T *q, const T *turns,
                                                 bool idle)
{
    for (int e = threadIdx.x; e < 4096; e += blockDim.x)
        q[e / 64 * 65 + e % 64] = idle ? (T)(e / 64 == e % 64) : turns[e];
}

/* x's rows of a team, `cols` columns of them from j0 on, become q times them;
 * in room, 64 x 65.  64 threads or more share tiles of 4 x 4. */
static __device__ __forceinline__ void turn_rows(const T *q, T *room,
                                                 const mats &x, i64 b,
                                                 const team &t, i64 j0,
                                                 int cols)
{
    for (int e = threadIdx.x; e < t.size * 64; e += blockDim.x) {
        i64 i = row_of(t, e / 64);
        bool in = i < t.n && e % 64 < cols;
        room[e / 64 * 65 + e % 64] =
            in ? *place(x, b, i, j0 + e % 64) : (T)0;
    }
    __syncthreads();
    int down = (t.size + 3) / 4;
    for (int e = threadIdx.x; e < down * 16; e += blockDim.x) {
        int i = e / 16;
        int j = e % 16;
        T sum[4][4] = {};
        for (int k = 0; k < t.size; k++)
            for (int r = 0; r < 4; r++) {
                int row = i + down * r;
                T f = row < t.size ? q[row * 65 + k] : (T)0;
                for (int s = 0; s < 4; s++)
                    sum[r][s] += f * room[k * 65 + j + 16 * s];
            }
        for (int r = 0; r < 4; r++)
            for (int s = 0; s < 4; s++) {
                i64 row = i + down * r < t.size ? row_of(t, i + down * r) : t.n;
                if (row < t.n && j + 16 * s < cols)
                    *place(x, b, row, j0 + j + 16 * s) = sum[r][s];
            }
    }
    __syncthreads();
}
)
