// SPDX-License-Identifier: BSL-1.0
// What a transformer's layers compute and move, counted from its shape as Megatron's kernels do it in 16 bits, and the
// times by a roofline.
#pragma once

#include <heddle/pipeline/strategy_problem.hpp>

namespace heddle::bench {

struct transformer_shape {
    double hidden = 0, wide = 0, heads = 0, sequence = 0, vocabulary = 0;
    /// Whether the perceptron has a gate (three products), and attention is one kernel that keeps no scores.
    bool is_gated = false, is_fused = false;
    /// Whether mask, biases, activation, dropout and addition are kernels of their own.
    bool is_eager = false;

    [[nodiscard]] double block_parameters() const {
        return 4 * hidden * hidden + (is_gated ? 3 : 2) * hidden * wide + 13 * hidden;
    }
    [[nodiscard]] double embedding_parameters() const { return vocabulary * hidden; }
};

/// The bytes that the optimiser moves for a parameter: of 32 bits a gradient is read, and a weight and two moments are
/// read and written; the weight of 16 bits is written. Runs took less than would also copy, scale and measure
/// gradients.
inline constexpr double optimiser_bytes = 30;

/// What kernels reach.
struct kernel_rates {
    flops_per_second products;
    bytes_per_second memory;
};

/// The work of a block's passes over `samples` on each of `tensor` devices, without collectives.
///
/// Products: of flops. Element by element, in tensors read or written, two bytes an element: two norms (read, write),
/// two of bias, dropout and addition at once (three and a mask), the bias and activation of the perceptron (read,
/// write), the copy of the context; and of the scores: the product that writes them, mask and softmax (two), dropout
/// (two and a mask), the product that reads them. Kernels of their own read and write twice more for each bias and
/// addition, and twice and a mask for the scores' mask. Backward twice the products, and per tensor what its kernel
/// reads and writes, the sums of biases' and norms' gradients, and the joined gradient of queries, keys and values.
inline pass_times block_work(transformer_shape const& s, double samples, double tensor, kernel_rates const& r) {
    double const tokens = samples * s.sequence, x = 2 * tokens * s.hidden, wide = 2 * tokens * s.wide / tensor,
                 scores = s.is_fused ? 0 : 2 * samples * s.heads * s.sequence * s.sequence / tensor;
    double const attention = s.is_fused ? 2 * tokens * s.sequence * s.hidden / tensor : 0; // causal: half
    seconds const products =
        flops(2 * tokens * s.hidden * (4 * s.hidden + (s.is_gated ? 3 : 2) * s.wide) / tensor + attention) / r.products;
    double const gate = s.is_gated ? 3 : 2, apart = s.is_eager ? 1 : 0;
    return {products +
                bytes((6.5 + 2.5 * apart) * scores + (11 + 8 * apart + 2 / tensor) * x + (gate + 2 * apart) * wide) /
                    r.memory,
            2 * products + bytes((9.5 + 2.5 * apart) * scores + (23 + 11 / tensor) * x + (gate + 2) * wide) / r.memory};
}

/// The work of the output's product and the loss. Logits are written in 16 bits and copied in 32; their maximum is
/// taken and subtracted, exponents are written, summed and divided: 40 bytes each. Backward they are scaled and copied
/// in 16 bits, which two products read: 18.
inline pass_times head_work(transformer_shape const& s, double samples, double tensor, kernel_rates const& r) {
    double const tokens = samples * s.sequence;
    seconds const product = flops(2 * tokens * s.embedding_parameters() / tensor) / r.products,
                  byte = bytes(tokens * s.vocabulary / tensor) / r.memory;
    return {product + 40 * byte, 2 * product + 18 * byte};
}

/// The work of looking up tokens and positions, adding them, and dropout.
inline pass_times embedding_work(transformer_shape const& s, double samples, kernel_rates const& r) {
    seconds const each = bytes(6 * 2 * samples * s.sequence * s.hidden) / r.memory;
    return {each, each};
}

} // namespace heddle::bench
