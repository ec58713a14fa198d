// nearest.h on the host: blocks of rows against blocks of centres in vector registers, in plain loops.
#pragma once

namespace nearest {

// What sums of a type are kept in.
template <class R> struct Sums;
template <> struct Sums<float> { typedef double type; };
template <> struct Sums<double> { typedef Twofold type; };

// As nearest.h's. Products are of floats, from the centres' mean; the bound is that of sums of D of them.
template <int N, int K, int D, int T, int RING, int CHUNK, int STEPS_AHEAD, int ROWS_AHEAD, Nan nan, class R, class C,
          int PRODUCTS>
struct Shape {
    static constexpr int WIDE = 16, HIGH = 6, BLOCKS = (K + WIDE - 1) / WIDE;

    struct SharedStorage {
        long long counts[K];
    };

    // What is kept of the centres while a work is done, in blocks of WIDE, column by column; and rows, and scores.
    struct Factors {
        float image[BLOCKS][D][WIDE], squares[BLOCKS * WIDE], rows[HIGH][D], scores[HIGH][BLOCKS * WIDE];
        R means[D];
        float spread, slack;

        void set(const C* centres)
        {
            for (int d = 0; d < D; d++) means[d] = 0;
            for (int k = 0; k < K; k++)
                for (int d = 0; d < D; d++) means[d] += (R)centres[(long long)k * D + d];
            for (int d = 0; d < D; d++) {
                means[d] /= K;
                if (!(means[d] - means[d] == 0)) means[d] = 0;
            }
            spread = 0;
            for (int n = 0; n < BLOCKS * WIDE; n++) {
                double square = 0;
                for (int d = 0; d < D; d++) {
                    const double value = n < K ? (double)centres[(long long)n * D + d] - means[d] : 0.0;
                    square += value * value;
                    image[n / WIDE][d][n % WIDE] = (float)value;
                }
                squares[n] = n < K ? (float)square : far_away();
                if (n >= K) continue;
                const float far = square < 1e30 ? (float)square : far_away();
                spread = spread < far ? far : spread;
            }
            slack = spread * 0x1.1p-22f;
        }

        // Scores of HIGH rows; `row` gives the address of each.
        void score(const R* const (&row)[HIGH])
        {
            for (int r = 0; r < HIGH; r++)
                for (int d = 0; d < D; d++) rows[r][d] = (float)(row[r][d] - means[d]);
            for (int block = 0; block < BLOCKS; block++) {
                float sum[HIGH][WIDE] = {};
                for (int d = 0; d < D; d++)
                    for (int r = 0; r < HIGH; r++)
                        for (int j = 0; j < WIDE; j++) sum[r][j] += rows[r][d] * image[block][d][j];
                for (int r = 0; r < HIGH; r++)
                    for (int j = 0; j < WIDE; j++)
                        scores[r][block * WIDE + j] = squares[block * WIDE + j] - 2 * sum[r][j];
            }
        }
    };

    static double exactly(const R* x, const C* c)
    {
        double part[WIDE] = {};
        for (int d = 0; d < D; d++) {
            const double difference = (double)x[d] - (double)c[d];
            part[d % WIDE] += difference * difference;
        }
        double sum = 0;
        for (int j = 0; j < WIDE; j++) sum += part[j];
        return sum;
    }

    // `from` is the row from the mean, as scores are made of it.
    static int choose(const R* x, const float* from, const float* scores, const Factors& factors, const C* centres)
    {
        float part[WIDE] = {}, norm = 0, least = far_away();
        for (int d = 0; d < D; d++) part[d % WIDE] += from[d] * from[d];
        for (int j = 0; j < WIDE; j++) norm += part[j];
        for (int k = 0; k < K; k++) least = scores[k] < least ? scores[k] : least;
        // Centres and rows whose squares are floats, with room for what products of them may lack.
        const bool all = !(factors.spread > 1e-30f && norm * factors.spread < 1e30f && norm < 1e30f);
        const float bound = 4 * (D + 8) * 0x1p-24f;
        const float most = least + bound * __builtin_sqrtf(norm * factors.spread) + factors.slack;
        int close = 0, where = 0;
        for (int k = K - 1; k >= 0; k--)
            if (scores[k] <= most) {
                close++;
                where = k;
            }
        if (close == 1 && !all) return where;
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

    template <class Put> static void label_all(const R* x, long long rows, const C* centres, Put put)
    {
        Factors& factors = *(Factors*)__builtin_malloc(sizeof(Factors));
        factors.set(centres);
        for (long long first = 0; first < rows; first += HIGH) {
            const R* row[HIGH];
            for (int r = 0; r < HIGH; r++) row[r] = x + (first + r < rows ? first + r : rows - 1) * D;
            factors.score(row);
            for (int r = 0; r < HIGH && first + r < rows; r++)
                put(first + r, choose(row[r], factors.rows[r], factors.scores[r], factors, centres));
        }
        __builtin_free(&factors);
    }

    static void prepare(unsigned char*, const C*) {}

    static void labels(const R* x, long long rows, SharedStorage&, const unsigned char*, const C* centres,
                       long long* out)
    {
        label_all(x, rows, centres, [&](long long row, int label) { out[row] = label; });
    }

    // No sums where there is no place for them; `beside(row, label)` is done for each row.
    template <class Beside>
    static void fold(const R* x, long long rows, SharedStorage& storage, const unsigned char*, const C* centres,
                     typename Sums<R>::type* sums, Beside beside)
    {
        typedef typename Sums<R>::type Sum;
        if (sums)
            for (long long i = 0; i < (long long)K * D; i++) sums[i] = 0.0;
        for (int k = 0; k < K; k++) storage.counts[k] = 0;
        label_all(x, rows, centres, [&](long long row, int label) {
            Sum* const sum = sums + (long long)label * D;
            const R* const item = x + row * D;
            if (sums)
                for (int d = 0; d < D; d++) sum[d] = Add::of(sum[d], Sum(item[d]));
            storage.counts[label]++;
            beside(row, label);
        });
    }
    static void fold(const R* x, long long rows, SharedStorage& storage, const unsigned char* scratch, const C* centres,
                     typename Sums<R>::type* sums)
    {
        fold(x, rows, storage, scratch, centres, sums, [](long long, int) {});
    }
};

}  // namespace nearest
