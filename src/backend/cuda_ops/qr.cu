NB_CUDA(
struct panel {
    i64 m, n, first, width, inside;
};

/* Column x of m numbers becomes the reflection I - tau v v^T, v[0] = 1, that
 * sends it to a multiple of the first unit vector: that multiple, then v. */
static __device__ __forceinline__ T reflection_of(T *x, i64 row, int m)
{
    T top = 0;
    T sum = 0;
    for (int i = 1 + threadIdx.x; i < m; i += blockDim.x)
        top = larger(top, ABS(x[i * row]));
    top = block_largest(top);
    if (top == 0) return 0;
    T head = x[0];
    top = larger(top, ABS(head));
    for (int i = threadIdx.x; i < m; i += blockDim.x) {
        T z = x[i * row] / top;
        sum += z * z;
    }
    sum = block_sum(sum);
    T norm = top * SQRT(sum);
    if (head >= 0) norm = -norm;
    for (int i = threadIdx.x; i < m; i += blockDim.x)
        x[i * row] = i ? x[i * row] / (head - norm) : norm;
    __syncthreads();
    return (norm - head) / norm;
}

/* Warp by warp: columns to the right are reflected, and the products of those
 * to the left with this one are what t is made of. */
static __device__ __forceinline__ void reflect(T *p, i64 row, i64 col, int m,
                                               int w, int c, T tau, T *dots)
{
    const T *v = p + c * col;
    int lane = threadIdx.x % 32;
    for (int q = threadIdx.x / 32; q < w; q += blockDim.x / 32) {
        T *x = p + q * col;
        T dot = lane == 0 && q != c ? x[c * row] : (T)0;
        if (q == c) continue;
        for (int i = c + 1 + lane; i < m; i += 32)
            dot += v[i * row] * x[i * row];
        dot = warp_sum(dot);
        if (q < c && lane == 0) dots[q] = dot;
        if (q < c) continue;
        T by = tau * dot;
        for (int i = c + lane; i < m; i += 32)
            x[i * row] -= i == c ? by : by * v[i * row];
    }
    __syncthreads();
}

/* Reflects rows of some columns and all below, and makes t of them: the product
 * of their reflections is I - v t v^T. */
static __device__ __forceinline__ void factor(T *p, i64 row, i64 col, int m,
                                              int w, const mats &t, i64 b,
                                              i64 first)
{
    __shared__ T dots[32];
    __shared__ T square[32][33];
    for (int c = 0; c < w; c++) {
        T tau = 0;
        if (c < m) tau = reflection_of(p + c * row + c * col, row, m - c);
        if (c < m) reflect(p, row, col, m, w, c, tau, dots);
        int i = threadIdx.x;
        T sum = 0;
        for (int k = i; i < c && k < c; k++)
            sum += square[i][k] * dots[k];
        if (i < w) square[i][c] = i < c ? -tau * sum : i == c ? tau : (T)0;
        __syncthreads();
    }
    for (int e = threadIdx.x; e < w * w; e += blockDim.x)
        *place(t, b, first + e / w, e % w) = square[e / w][e % w];
}

extern "C" __global__ void __launch_bounds__(1024)
qr_panel(const mats a, const panel f, const mats t, const int *skip)
{
    extern __shared__ __align__(16) char memory[];
    T *p = (T *)memory;
    i64 b = blockIdx.x;
    int m = (int)(f.m - f.first);
    int w = (int)f.width;
    if (skip && skip[b]) return;
    T *from = place(a, b, f.first, f.first);
    for (int e = threadIdx.x; f.inside && e < m * w; e += blockDim.x)
        p[e % w * m + e / w] = from[e / w * a.row + e % w * a.col];
    __syncthreads();
    if (f.inside)
        factor(p, 1, m, m, w, t, b, f.first);
    else
        factor(from, a.row, a.col, m, w, t, b, f.first);
    __syncthreads();
    for (int e = threadIdx.x; f.inside && e < m * w; e += blockDim.x)
        from[e / w * a.row + e % w * a.col] = p[e % w * m + e / w];
}

static __device__ __forceinline__ void load_vectors(T (*vs)[33], const mats &v,
                                                    i64 b, i64 i0, int rows,
                                                    int w)
{
    for (int e = threadIdx.x; e < 1024; e += 256) {
        i64 i = i0 + e / 32;
        int q = e % 32;
        T x = 0;
        if (e / 32 < rows && q < w && i > q) x = *place(v, b, i, q);
        vs[e / 32][q] = i == q && q < w ? (T)1 : x;
    }
}

/* x -= v t (v^T x), or with t^T; v is m x w, w at most 32, and lies below the
 * diagonal.  A block has 16 columns of x. */
extern "C" __global__ void __launch_bounds__(256)
qr_apply(const mats v, const mats t, const mats x, i64 m, int w, int turned,
         i64 cols, i64 tiles, const int *skip)
{
    __shared__ T vs[32][33];
    __shared__ T xs[32][17];
    __shared__ T ys[32][17];
    i64 b = blockIdx.x / tiles;
    i64 j0 = blockIdx.x % tiles * 16;
    int c = threadIdx.x % 16;
    int g = threadIdx.x / 16;
    if (skip && skip[b]) return;
    bool is = j0 + c < cols;
    T y0 = 0;
    T y1 = 0;
    for (i64 i0 = 0; i0 < m; i0 += 32) {
        int rows = m - i0 < 32 ? (int)(m - i0) : 32;
        load_vectors(vs, v, b, i0, rows, w);
        for (int r = g; r < 32; r += 16)
            xs[r][c] = is && r < rows ? *place(x, b, i0 + r, j0 + c) : (T)0;
        __syncthreads();
        for (int r = 0; r < 32; r++) {
            y0 += vs[r][g] * xs[r][c];
            y1 += vs[r][g + 16] * xs[r][c];
        }
        __syncthreads();
    }
    xs[g][c] = y0;
    xs[g + 16][c] = y1;
    __syncthreads();
    for (int r = g; r < 32; r += 16) {
        T sum = 0;
        for (int q = 0; r < w && q < w; q++) {
            T f = turned ? *place(t, b, q, r) : *place(t, b, r, q);
            sum += f * xs[q][c];
        }
        ys[r][c] = sum;
    }
    __syncthreads();
    for (i64 i0 = 0; i0 < m; i0 += 32) {
        int rows = m - i0 < 32 ? (int)(m - i0) : 32;
        load_vectors(vs, v, b, i0, rows, w);
        __syncthreads();
        for (int r = g; is && r < rows; r += 16) {
            T sum = 0;
            for (int q = 0; q < 32; q++)
                sum += vs[r][q] * ys[q][c];
            *place(x, b, i0 + r, j0 + c) -= sum;
        }
        __syncthreads();
    }
}
)
