NB_CUDA(
FN int tiles(const product &p)
{
    return (p.m + BM - 1) / BM * ((p.n + BN - 1) / BN);
}

/* Blocks go through C in bands of eight tiles, whose operands stay in cache. */
FN void place_tile(const product &p, int &m, int &n)
{
    int down = (p.m + BM - 1) / BM, across = (p.n + BN - 1) / BN;
    int tile = blockIdx.x % tiles(p), first = tile / (8 * across) * 8;
    int height = down - first < 8 ? down - first : 8;
    int left = tile % (8 * across);
    m = (first + left % height) * BM;
    n = left / height * BN;
}
)
