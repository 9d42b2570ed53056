NB_CUDA(
struct panel {
    i64 n, first, width, inside;
};

/* The place of the first largest of column c of a panel of m rows. */
static __device__ __forceinline__ int find_pivot(const T *p, i64 row, int m,
                                                 int c)
{
    __shared__ T tops[32];
    __shared__ int places[32];
    T best = -1;
    int at = m;
    for (int r = c + threadIdx.x; r < m; r += blockDim.x) {
        T v = ABS(p[r * row]);
        if (v > best) at = r;
        if (v > best) best = v;
    }
    for (int by = 16; by > 0; by /= 2) {
        T other = __shfl_xor_sync(0xffffffffu, best, by);
        int there = __shfl_xor_sync(0xffffffffu, at, by);
        bool first = other > best || (other == best && there < at);
        if (first) best = other;
        if (first) at = there;
    }
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = best;
    if (threadIdx.x % 32 == 0) places[threadIdx.x / 32] = at;
    __syncthreads();
    for (int w = 0; w < (int)blockDim.x / 32; w++) {
        bool first = tops[w] > best || (tops[w] == best && places[w] < at);
        if (first) best = tops[w];
        if (first) at = places[w];
    }
    return at < m ? at : c;
}

static __device__ __forceinline__ void swap(T *x, T *y)
{
    T keep = *x;
    *x = *y;
    *y = keep;
}

/* Factors m rows by w columns; element r, c at p[r * row + c * col].  Threads
 * have the same rows in every step, but for those that are exchanged. */
static __device__ __forceinline__ void factor(T *p, i64 row, i64 col, int m,
                                              int w, i64 first, int *order,
                                              int *pivot, int *sign)
{
    int steps = w < m ? w : m;
    for (int c = 0; c < steps; c++) {
        int top = find_pivot(p + c * col, row, m, c);
        for (int q = threadIdx.x; top != c && q < w; q += blockDim.x)
            swap(p + c * row + q * col, p + top * row + q * col);
        if (threadIdx.x == 0) {
            int was = order[first + c];
            order[first + c] = order[first + top];
            order[first + top] = was;
            pivot[first + c] = top;
            if (top != c) *sign = -*sign;
        }
        __syncthreads();
        T by = p[c * row + c * col];
        for (int r = c + 1 + threadIdx.x; by != 0 && r < m; r += blockDim.x) {
            T f = p[r * row + c * col] / by;
            p[r * row + c * col] = f;
            for (int q = c + 1; q < w; q++)
                p[r * row + q * col] -= f * p[c * row + q * col];
        }
    }
}

/* Rows of some columns and all below, a block a matrix; in the block's memory
 * where they fit. */
extern "C" __global__ void __launch_bounds__(1024)
lu_panel(const mats a, const panel f, int *orders, int *pivots, int *signs)
{
    extern __shared__ __align__(16) char memory[];
    T *p = (T *)memory;
    i64 b = blockIdx.x;
    int *order = orders + b * f.n;
    int *pivot = pivots + b * f.n;
    int m = (int)(f.n - f.first);
    int w = (int)f.width;
    T *from = place(a, b, f.first, f.first);
    for (int i = threadIdx.x; f.first == 0 && i < m; i += blockDim.x)
        order[i] = i;
    if (f.first == 0 && threadIdx.x == 0) signs[b] = 1;
    for (int e = threadIdx.x; f.inside && e < m * w; e += blockDim.x)
        p[e % w * m + e / w] = from[e / w * a.row + e % w * a.col];
    __syncthreads();
    if (f.inside)
        factor(p, 1, m, m, w, f.first, order, pivot, signs + b);
    else
        factor(from, a.row, a.col, m, w, f.first, order, pivot, signs + b);
    __syncthreads();
    for (int e = threadIdx.x; f.inside && e < m * w; e += blockDim.x)
        from[e / w * a.row + e % w * a.col] = p[e % w * m + e / w];
}

/* The exchanges of a panel in the columns beside it, 32 a block, and in those to
 * the right of it the rows of u.  Rows that are exchanged with lie behind the
 * panel's own, each once. */
extern "C" __global__ void __launch_bounds__(256)
lu_rows(const mats a, const panel f, const int *pivots, i64 tiles)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ int slot[64];
    int w = (int)f.width;
    T *y = (T *)memory;
    T *l = y + 2 * w * 33;
    i64 b = blockIdx.x / tiles;
    i64 col = blockIdx.x % tiles * 32 + threadIdx.x % 32;
    const int *pivot = pivots + b * f.n + f.first;
    int me = threadIdx.x % 32;
    int group = threadIdx.x / 32;
    bool is = col < f.n - w;
    if (col >= f.first) col += w;
    bool right = col >= f.first + w;
    for (int t = threadIdx.x; t < w; t += 256) {
        int same = t;
        for (int u = t - 1; u >= 0; u--)
            if (pivot[u] == pivot[t]) same = u;
        slot[t] = pivot[t] < w ? pivot[t] : w + same;
    }
    for (int e = threadIdx.x; e < w * w; e += 256)
        l[e / w * (w + 1) + e % w] =
            *place(a, b, f.first + e / w, f.first + e % w);
    __syncthreads();
    for (int r = group; is && r < w; r += 8) {
        y[r * 33 + me] = *place(a, b, f.first + r, col);
        if (slot[r] == w + r)
            y[(w + r) * 33 + me] = *place(a, b, f.first + pivot[r], col);
    }
    __syncthreads();
    for (int r = 0; group == 0 && is && r < w; r++)
        swap(y + r * 33 + me, y + slot[r] * 33 + me);
    __syncthreads();
    for (int j = 0; j < w; j++) {
        for (int i = j + 1 + group; is && right && i < w; i += 8)
            y[i * 33 + me] -= l[i * (w + 1) + j] * y[j * 33 + me];
        __syncthreads();
    }
    for (int r = group; is && r < w; r += 8) {
        *place(a, b, f.first + r, col) = y[r * 33 + me];
        if (slot[r] == w + r)
            *place(a, b, f.first + pivot[r], col) = y[(w + r) * 33 + me];
    }
}

/* The determinant, or its sign and the logarithm of its size: a warp a matrix,
 * factors in their order. */
extern "C" __global__ void __launch_bounds__(32)
lu_det(const mats a, i64 n, const int *signs, T *det, T *log_size)
{
    i64 b = blockIdx.x;
    double sign = signs[b];
    double sum = 0;
    for (i64 i0 = 0; i0 < n; i0 += 32) {
        i64 i = i0 + threadIdx.x;
        double x = i < n ? (double)*place(a, b, i, i) : 1.0;
        double by = !log_size ? x : x > 0 ? 1 : x < 0 ? -1 : x;
        double size = log_size ? log(fabs(x)) : 0;
        for (int k = 0; k < 32 && i0 + k < n; k++) {
            sign *= __shfl_sync(0xffffffffu, by, k);
            sum += __shfl_sync(0xffffffffu, size, k);
        }
    }
    if (threadIdx.x == 0) det[b] = (T)sign;
    if (threadIdx.x == 0 && log_size) log_size[b] = (T)sum;
}
)
