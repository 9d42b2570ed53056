NB_CUDA(
struct at {
    const void *in[3];
    void *out;
};
)
