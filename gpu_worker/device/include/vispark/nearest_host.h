// nearest.h on the host: blocks of rows against blocks of centres in vector registers, in plain loops.
#pragma once

namespace nearest {

// As nearest.h's. Products are of floats; the bound is that of sums of D of them.
template <int N, int K, int D, int T, int RING, int CHUNK, int STEPS_AHEAD, int ROWS_AHEAD, Nan nan, class C,
          int PRODUCTS>
struct Shape {
    static constexpr int WIDE = 16, HIGH = 6, BLOCKS = (K + WIDE - 1) / WIDE;

    struct Room {
        long long counts[K];
    };

    // What is kept of the centres while a work is done: from their mean, in blocks of WIDE, column by column.
    struct Factors {
        float image[BLOCKS][D][WIDE], squares[BLOCKS * WIDE], scores[HIGH][BLOCKS * WIDE];
        double means[D];
        float spread, slack;

        void set(const C* centres)
        {
            for (int d = 0; d < D; d++) means[d] = 0;
            for (int k = 0; k < K; k++)
                for (int d = 0; d < D; d++) means[d] += centres[(long long)k * D + d];
            for (int d = 0; d < D; d++) {
                means[d] = (float)(means[d] / K);
                if (!(means[d] - means[d] == 0.0)) means[d] = 0;
            }
            spread = slack = 0;
            for (int n = 0; n < BLOCKS * WIDE; n++) {
                double square = 0, apart = 0;
                for (int d = 0; d < D; d++) {
                    const double value = n < K ? (double)centres[(long long)n * D + d] : means[d];
                    square += (value - means[d]) * (value + means[d]);
                    apart += (value - means[d]) * (value - means[d]);
                    image[n / WIDE][d][n % WIDE] = (float)(value - means[d]);
                }
                squares[n] = n < K ? (float)square : far_away();
                if (n >= K) continue;
                const float far = apart < 1e30 ? (float)apart : far_away();
                spread = spread < far ? far : spread;
                const float most = square < 1e30 && square > -1e30 ? (float)__builtin_fabs(square) : far_away();
                slack = slack < most * 0x1p-22f ? most * 0x1p-22f : slack;
            }
        }

        // Scores of HIGH rows; `row` gives the address of each.
        void score(const float* const (&row)[HIGH])
        {
            for (int block = 0; block < BLOCKS; block++) {
                float sum[HIGH][WIDE] = {};
                for (int d = 0; d < D; d++)
                    for (int r = 0; r < HIGH; r++)
                        for (int j = 0; j < WIDE; j++) sum[r][j] += row[r][d] * image[block][d][j];
                for (int r = 0; r < HIGH; r++)
                    for (int j = 0; j < WIDE; j++)
                        scores[r][block * WIDE + j] = squares[block * WIDE + j] - 2 * sum[r][j];
            }
        }
    };

    static double exactly(const float* x, const C* c)
    {
        double part[WIDE] = {};
        for (int d = 0; d < D; d++) {
            const double apart = (double)x[d] - (double)c[d];
            part[d % WIDE] += apart * apart;
        }
        double sum = 0;
        for (int j = 0; j < WIDE; j++) sum += part[j];
        return sum;
    }

    static int choose(const float* x, const float* scores, const Factors& given, const C* centres)
    {
        float part[WIDE] = {}, norm = 0, least = far_away();
        for (int d = 0; d < D; d++) part[d % WIDE] += x[d] * x[d];
        for (int j = 0; j < WIDE; j++) norm += part[j];
        for (int k = 0; k < K; k++) least = scores[k] < least ? scores[k] : least;
        const bool all = !(norm * given.spread < 1e30f && norm < 1e30f);
        const float bound = 4 * (D + 8) * 0x1p-24f;
        const float most = least + bound * __builtin_sqrtf(norm * given.spread) + given.slack;
        int found = 0, where = 0;
        for (int k = K - 1; k >= 0; k--)
            if (scores[k] <= most) {
                found++;
                where = k;
            }
        if (found == 1 && !all) return where;
        double nearest = far_away();
        where = 0;
        for (int k = 0; k < K; k++) {
            if (!all && !(scores[k] <= most)) continue;
            double distance = exactly(x, centres + (long long)k * D);
            if ((nan == FIRST || (nan == START && k == 0)) && distance != distance) distance = -1;
            if (distance < nearest) {
                nearest = distance;
                where = k;
            }
        }
        return where;
    }

    template <class Put> static void label_all(const float* x, long long rows, const C* centres, Put put)
    {
        Factors& given = *(Factors*)__builtin_malloc(sizeof(Factors));
        given.set(centres);
        for (long long first = 0; first < rows; first += HIGH) {
            const float* row[HIGH];
            for (int r = 0; r < HIGH; r++) row[r] = x + (first + r < rows ? first + r : rows - 1) * D;
            given.score(row);
            for (int r = 0; r < HIGH && first + r < rows; r++)
                put(first + r, choose(row[r], given.scores[r], given, centres));
        }
        __builtin_free(&given);
    }

    static void prepare(unsigned char*, const C*) {}

    static void labels(const float* x, long long rows, Room&, const unsigned char*, const C* centres, long long* out)
    {
        label_all(x, rows, centres, [&](long long row, int label) { out[row] = label; });
    }

    static void fold(const float* x, long long rows, Room& room, const unsigned char*, const C* centres, double* sums)
    {
        for (long long i = 0; i < (long long)K * D; i++) sums[i] = 0;
        for (int k = 0; k < K; k++) room.counts[k] = 0;
        label_all(x, rows, centres, [&](long long row, int label) {
            double* sum = sums + (long long)label * D;
            const float* item = x + row * D;
            for (int d = 0; d < D; d++) sum[d] += item[d];
            room.counts[label]++;
        });
    }
};

}  // namespace nearest
