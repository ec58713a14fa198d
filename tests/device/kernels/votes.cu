// Votes, shuffles of every kind and barriers that count.
extern "C" __global__ void votes(const int* in, unsigned* ballots, int* any_all, int* counts)
{
    const int t = threadIdx.x, lane = t & 31, warp = t / 32;
    const unsigned all = 0xffffffffu;
    const unsigned ballot = __ballot_sync(all, in[t] > 0);
    if (lane == 0)
        ballots[warp] = ballot;
    if (__any_sync(all, in[t] > 100) && lane == 0)
        any_all[2 * warp] = 1;
    if (__all_sync(all, in[t] > -100) && lane == 0)
        any_all[2 * warp + 1] = 1;
    const int count = __syncthreads_count(in[t] > 0);
    const int every = __syncthreads_and(in[t] > -1000);
    const int some = __syncthreads_or(in[t] == 12345);
    if (t == 0) {
        counts[0] = count;
        counts[1] = every != 0;
        counts[2] = some != 0;
    }
}

extern "C" __global__ void shuffles(const int* in, int* out)
{
    const int t = threadIdx.x, lane = t & 31;
    const unsigned all = 0xffffffffu;
    const int value = in[t];
    int* row = out + t * 6;
    row[0] = __shfl_sync(all, value, 5);
    row[1] = __shfl_up_sync(all, value, 3);
    row[2] = __shfl_down_sync(all, value, 3, 8);
    row[3] = __shfl_xor_sync(all, value, 6);
    double wide = __shfl_sync(all, value + 0.5, lane + 1, 16);
    row[4] = (int)(2 * wide);
    row[5] = 0;
    if (lane < 20) {
        const unsigned mask = __activemask();
        row[5] = __popc(mask & 0xfffffu) + __shfl_sync(0xfffffu, value, 19);
        __syncwarp(0xfffffu);
    }
}

extern "C" __global__ void compact(const int* in, int* out, int* length)
{
    const int value = in[threadIdx.x];
    const unsigned kept = __ballot_sync(0xffffffffu, value != 0);
    const int before = __popc(kept & ((1u << threadIdx.x) - 1));
    if (value != 0)
        out[before] = value;
    if (threadIdx.x == 0)
        *length = __popc(kept);
}
