NB_CUDA(
struct search {
    dims at; /* row, values, sorter, result */
    i64 n, step, sorter_step, right;
};

/* Of those that the sorter names, negative places count from the end, and those
 * out of range mean the nearest. */
static __device__ __forceinline__ K row_at(const search &s, const T *row,
                                           const I *sorter, i64 i)
{
    if (!SORTED) {
        I named = sorter[i * s.sorter_step];
        i64 at = (i64)named;
        if (at < 0) at += s.n;
        i = at < 0 ? 0 : at >= s.n ? s.n - 1 : at;
    }
    return key_of(row[i * s.step]);
}

extern "C" __global__ void __launch_bounds__(256)
search_sorted(const search s, const at a)
{
    for (i64 k = blockIdx.x * 256ll + threadIdx.x; k < s.at.count;
         k += gridDim.x * 256ll) {
        const T *row = (const T *)a.in[0] + dims_at(s.at, 0, k);
        K v = key_of(((const T *)a.in[1])[dims_at(s.at, 1, k)]);
        const I *sorter =
            SORTED ? (const I *)0
                   : (const I *)a.in[2] + dims_at(s.at, 2, k);
        i64 lo = 0;
        i64 hi = s.n;
        while (lo < hi) {
            i64 mid = lo + (hi - lo) / 2;
            K key = row_at(s, row, sorter, mid);
            bool before = key < v || (s.right && key == v);
            if (before) lo = mid + 1;
            else hi = mid;
        }
        ((i64 *)a.out)[dims_at(s.at, 3, k)] = lo;
    }
}
)
