// kernels: signs_kernel
// calls of functions with early returns
extern "C" __global__ void __launch_bounds__(256)
signs_kernel(const float* __restrict__ x_in, long long* __restrict__ out, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const float x = x_in[element];
        long long sign_of_result;
        if (x > 0.0f) {
            sign_of_result = 1;
        } else {
            if (x < 0.0f) {
                sign_of_result = -1;
            } else {
                sign_of_result = 0;
            }
        }
        const float x_1 = -x;
        long long sign_of_result_1;
        if (x_1 > 0.0f) {
            sign_of_result_1 = 1;
        } else {
            if (x_1 < 0.0f) {
                sign_of_result_1 = -1;
            } else {
                sign_of_result_1 = 0;
            }
        }
        out[element] = (sign_of_result * 10) + sign_of_result_1;
    }
}
