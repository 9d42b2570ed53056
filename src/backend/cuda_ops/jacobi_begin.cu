NB_CUDA(
/* Divides a matrix by a power of two, so that its squares are numbers; a block
 * a matrix. */
extern "C" __global__ void __launch_bounds__(1024)
jacobi_begin(const mats w, i64 rows, i64 cols, const state s)
{
    i64 b = blockIdx.x;
    int *flag = s.flag + b * FLAGS;
    T top = 0;
    T sum = 0;
    for (i64 e = threadIdx.x; e < rows * cols; e += blockDim.x)
        top = larger(top, ABS(*place(w, b, e / cols, e % cols)));
    top = block_largest(top);
    T by = power_of(top);
    for (i64 e = threadIdx.x; e < rows * cols; e += blockDim.x) {
        T x = *place(w, b, e / cols, e % cols) / by;
        *place(w, b, e / cols, e % cols) = x;
        sum += x * x;
    }
    sum = block_sum(sum);
    if (threadIdx.x < FLAGS) flag[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x) return;
    flag[BAD] = top - top != 0;
    s.number[2 * b] = by;
    s.number[2 * b + 1] = SQRT(sum);
}

/* The rows of all teams of a round, 64 columns a block. */
extern "C" __global__ void __launch_bounds__(256)
jacobi_rows(const mats x, i64 n, i64 cols, int blocks, int round, int turn,
            const state s, const T *turns, const int *idle, i64 tiles)
{
    extern __shared__ __align__(16) char memory[];
    T *q = (T *)memory;
    T *room = q + 64 * 65;
    int pairs = blocks / 2;
    i64 tile = blockIdx.x % tiles;
    i64 which = blockIdx.x / tiles;
    i64 b = which / pairs;
    team t = team_of(n, blocks, round, (int)(which % pairs));
    if (is_done(s, b, turn) || idle[which]) return;
    load_turn(q, turns + which * 4096, false);
    i64 left = cols - tile * 64;
    turn_rows(q, room, x, b, t, tile * 64, left < 64 ? (int)left : 64);
}

/* Places in the order of their values, rising or falling; equals as they are. */
extern "C" __global__ void __launch_bounds__(256)
jacobi_order(const T *values, i64 step, i64 each, i64 n, i64 count,
             int falling, int *order)
{
    for (i64 k = blockIdx.x * 256ll + threadIdx.x; k < count * n;
         k += gridDim.x * 256ll) {
        const T *x = values + k / n * each;
        i64 i = k % n;
        T mine = x[i * step];
        i64 rank = 0;
        for (i64 j = 0; j < n; j++) {
            T other = x[j * step];
            bool before = falling ? other > mine : other < mine;
            rank += before || (other == mine && j < i);
        }
        order[k / n * n + rank] = (int)i;
    }
}

/* What makes the first component positive that is nearly the largest: a warp a
 * row. */
extern "C" __global__ void __launch_bounds__(256)
jacobi_signs(const mats x, i64 n, i64 cols, i64 count, T *signs)
{
    for (i64 k = blockIdx.x * 8ll + threadIdx.x / 32; k < count * n;
         k += gridDim.x * 8ll) {
        T top = 0;
        int first = (int)cols;
        for (i64 j = threadIdx.x % 32; j < cols; j += 32)
            top = larger(top, ABS(*place(x, k / n, k % n, j)));
        for (int by = 16; by > 0; by /= 2)
            top = larger(top, __shfl_xor_sync(0xffffffffu, top, by));
        for (i64 j = threadIdx.x % 32; j < cols; j += 32)
            if (ABS(*place(x, k / n, k % n, j)) >= (T)NEARLY * top && j < first)
                first = (int)j;
        for (int by = 16; by > 0; by /= 2) {
            int other = __shfl_xor_sync(0xffffffffu, first, by);
            first = other < first ? other : first;
        }
        bool turned = first < cols && *place(x, k / n, k % n, first) < 0;
        if (threadIdx.x % 32 == 0) signs[k] = turned ? -1 : 1;
    }
}
)
