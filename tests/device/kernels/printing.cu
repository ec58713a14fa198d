// Output from a kernel, and an assertion that holds.
#include <stdio.h>
#include <assert.h>
extern "C" __global__ void hello(int n)
{
    assert(n > 0);
    if (blockIdx.x == 1 && threadIdx.x == 2)
        printf("thread %d of %d, %.2f %s\n", threadIdx.x, n, 1.5, "ready");
}
