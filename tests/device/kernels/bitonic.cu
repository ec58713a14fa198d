// Bitonic sort of one block's keys.
extern "C" __global__ void bitonic_sort(unsigned* keys)
{
    extern __shared__ unsigned shared[];
    const unsigned t = threadIdx.x;
    shared[t] = keys[blockIdx.x * blockDim.x + t];
    for (unsigned k = 2; k <= blockDim.x; k <<= 1) {
        for (unsigned j = k >> 1; j > 0; j >>= 1) {
            __syncthreads();
            const unsigned other = t ^ j;
            if (other > t) {
                const bool ascending = (t & k) == 0;
                if ((shared[t] > shared[other]) == ascending) {
                    const unsigned kept = shared[t];
                    shared[t] = shared[other];
                    shared[other] = kept;
                }
            }
        }
    }
    __syncthreads();
    keys[blockIdx.x * blockDim.x + t] = shared[t];
}
