// The reductions of sm_80: one value of a warp, in all of its lanes.
extern "C" __global__ void reductions(const int* in, int* out)
{
    const int t = threadIdx.x;
    const unsigned all = 0xffffffffu;
    int* row = out + t * 5;
    row[0] = __reduce_add_sync(all, in[t]);
    row[1] = __reduce_min_sync(all, in[t]);
    row[2] = __reduce_max_sync(all, in[t]);
    row[3] = (int)__reduce_xor_sync(all, (unsigned)in[t]);
    row[4] = (int)__match_any_sync(all, in[t] & 3);
}
