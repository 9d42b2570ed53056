NB_CUDA(
struct source {
    dims at;
    i64 operand, row, col, rows, cols, symmetric;
};

/* Copies matrices, rows in the order of `order` if there is one; or what is
 * symmetric in them.  Halves are added, so that nothing overflows, and what is
 * symmetric stays as it is. */
extern "C" __global__ void __launch_bounds__(256)
mats_load(const source s, const T *x, const mats to, const int *order)
{
    i64 each = s.rows * s.cols;
    for (i64 k = blockIdx.x * 256ll + threadIdx.x; k < s.at.count * each;
         k += gridDim.x * 256ll) {
        i64 b = k / each;
        i64 i = k % each / s.cols;
        i64 j = k % s.cols;
        i64 row = order ? order[b * s.rows + i] : i;
        const T *from = x + dims_at(s.at, (int)s.operand, b);
        T v = from[row * s.row + j * s.col];
        if (s.symmetric) {
            T u = from[j * s.row + row * s.col];
            if (u != v) v = v / 2 + u / 2;
        }
        *place(to, b, i, j) = v;
    }
}

/* Unit matrices, with their columns in some order. */
extern "C" __global__ void __launch_bounds__(256)
mats_unit(const mats to, i64 rows, i64 cols, i64 count, const int *order)
{
    i64 each = rows * cols;
    for (i64 k = blockIdx.x * 256ll + threadIdx.x; k < count * each;
         k += gridDim.x * 256ll) {
        i64 b = k / each;
        i64 i = k % each / cols;
        i64 j = k % cols;
        i64 one = order ? order[b * rows + i] : i;
        *place(to, b, i, j) = one == j;
    }
}

/* The upper trapezoid, zeros below. */
extern "C" __global__ void __launch_bounds__(256)
mats_triangle(const mats from, const mats to, i64 rows, i64 cols, i64 count)
{
    i64 each = rows * cols;
    for (i64 k = blockIdx.x * 256ll + threadIdx.x; k < count * each;
         k += gridDim.x * 256ll) {
        i64 b = k / each;
        i64 i = k % each / cols;
        i64 j = k % cols;
        *place(to, b, i, j) = j >= i ? *place(from, b, i, j) : (T)0;
    }
}
)
