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
 * written, no rounding makes them longer on the whole, as that of a cosine near
 * one would. */
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

/* All pairs of rows and columns of symmetric g once, half of them at a time:
 * turned so that where they meet nothing is left; q's rows with them.  Whether
 * there was something to do, for all threads. */
static __device__ __forceinline__ bool sweep(T *g, T *q, int n,
                                             const limits &l)
{
    __shared__ T half_tan[32];
    __shared__ T sine[32];
    __shared__ T tangent[32];
    __shared__ int one[32];
    __shared__ int two[32];
    int half = n / 2;
    int others = n - 1;
    int turned = 0;
    for (int round = 0; round < others; round++) {
        int k = threadIdx.x;
        if (k < half) {
            int i = k ? (round + k) % others : others;
            int j = (round - k + others) % others;
            T p = g[i * 65 + i];
            T r = g[j * 65 + j];
            T x = g[i * 65 + j];
            T t = 0;
            if (!is_small(l, p, r, x)) {
                T z = (r - p) / (2 * x);
                t = 1 / (ABS(z) + SQRT(1 + z * z));
                if (z < 0) t = -t;
                turned = 1;
            }
            T c = 1 / SQRT(1 + t * t);
            one[k] = i * 65;
            two[k] = j * 65;
            sine[k] = c * t;
            half_tan[k] = c * t / (1 + c);
            tangent[k] = t;
        }
        __syncthreads();
        for (int e = threadIdx.x; e < half * half; e += blockDim.x) {
            int a = e / half;
            int b = e % half;
            if (a > b || (tangent[a] == 0 && tangent[b] == 0)) continue;
            int i = one[a];
            int j = two[a];
            int u = one[b] / 65;
            int v = two[b] / 65;
            T iu = g[i + u];
            T iv = g[i + v];
            T ju = g[j + u];
            T jv = g[j + v];
            if (a == b) {
                g[i + u] = iu - tangent[a] * iv;
                g[j + v] = jv + tangent[a] * iv;
                g[i + v] = g[j + u] = 0;
                continue;
            }
            rotate(&iu, &ju, sine[a], half_tan[a]);
            rotate(&iv, &jv, sine[a], half_tan[a]);
            rotate(&iu, &iv, sine[b], half_tan[b]);
            rotate(&ju, &jv, sine[b], half_tan[b]);
            g[i + u] = iu;
            g[i + v] = iv;
            g[j + u] = ju;
            g[j + v] = jv;
            i /= 65;
            j /= 65;
            u *= 65;
            v *= 65;
            g[u + i] = iu;
            g[v + i] = iv;
            g[u + j] = ju;
            g[v + j] = jv;
        }
        for (int e = threadIdx.x; e < half * n; e += blockDim.x) {
            int a = e / n;
            if (tangent[a] != 0)
                rotate(q + one[a] + e % n, q + two[a] + e % n, sine[a],
                       half_tan[a]);
        }
        __syncthreads();
    }
    return __syncthreads_or(turned);
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
