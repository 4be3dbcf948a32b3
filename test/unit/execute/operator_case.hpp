// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief One operator of the catalogue on random data: its vjp against differences, its parts against the whole.
#pragma once

#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/in_process.hpp>
#include <heddle/program/operators.hpp>
#include <heddle/theory/theory.hpp>
#include <support/literals.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

using dense = dense_tensor<double>;

/// The values from which an operand is drawn.
struct domain {
    double low = -1, high = 1;
    element_type type = element_type::float32;
    static domain below(int count) { return {0, static_cast<double>(count), element_type::int64}; }
    static domain boolean() { return {0, 2, element_type::boolean}; }
    static domain positive() { return {0.5, 2}; }
};

struct operator_case {
    std::string target;
    std::vector<tensor_shape> operands;
    std::vector<literal> arguments{};
    std::map<std::string, literal, std::less<>> keywords{};
    std::vector<tensor_shape> results{};
    /// The values of an operand if they are not [-1, 1].
    std::map<std::size_t, domain> domains{};
    /// The floating-point operands that are constants.
    std::vector<std::size_t> constants{};
    /// The catalogue has no rule for the operator.
    bool is_blocked = false;
};

/// Runs calls on dense tensors.
struct case_kernels {
    using tensor = dense;
    std::function<std::vector<dense>(tensor_call<dense> const&, std::span<dense const* const>)> forward;
    std::function<std::vector<std::optional<dense>>(tensor_call<dense> const&, std::span<dense const* const>,
                                                    std::span<dense const* const>, std::span<dense const* const>)>
        backward;
};

[[nodiscard]] inline case_kernels const& reference_kernels() {
    static eigen_kernels<double> const backend;
    static case_kernels const kernels{
        [](auto const& call, auto x) { return backend.forward(call, x); },
        [](auto const& call, auto x, auto y, auto g) { return backend.backward(call, x, y, g); }};
    return kernels;
}

/// Returns what `check` checks: the reference kernels, unless a program sets another backend's.
[[nodiscard]] inline case_kernels& checked_kernels() {
    static case_kernels kernels = reference_kernels();
    return kernels;
}

/// Says whether other operators see the same dimensions as products, so that loops are pieces of indices.
enum class neighbours { none, factoring };

class operator_check {
public:
    operator_check(operator_case c, unsigned seed, neighbours around = neighbours::none,
                   case_kernels const& kernels = reference_kernels())
        : case_(std::move(c)), around_(around), random_(seed), program_(build()), indexed_(index_program(program_)),
          backend_(kernels) {
        std::vector<dense> drawn;
        for (std::size_t k = 0; k < case_.operands.size(); ++k) drawn.push_back(draw(case_.operands[k], domain_of(k)));
        for (auto t : program_.operands(0))
            x_.push_back(drawn[t]); // tensors are numbered as the case's operands, a rule may order them anew
        call_ = whole_call(program_, 0, seed);
        y_ = backend_.forward(call_, view(x_));
        REQUIRE(y_.size() == case_.results.size());
        for (std::size_t r = 0; r < y_.size(); ++r) {
            REQUIRE(y_[r].dims == case_.results[r]);
            for (double v : y_[r].data) REQUIRE(std::isfinite(v));
            g_.push_back(draw(y_[r].dims, {}));
        }
        dx_ = backend_.backward(call_, view(x_), view(y_), view(g_));
    }

    void run() {
        check_derivatives();
        for (auto const& i : computations(indexed_, 0))
            if (i.loop < 0 || !indexed_.operators[0].loops[static_cast<std::size_t>(i.loop)].exchanges()) // plans do
                for (std::size_t ranks : {1u, 2u, 3u, 5u}) check_distributed(i, ranks);
    }

    [[nodiscard]] std::vector<dense> const& results() const { return y_; }
    [[nodiscard]] std::vector<std::optional<dense>> const& derivatives() const { return dx_; }
    [[nodiscard]] std::vector<dense>& operands() { return x_; }

private:
    [[nodiscard]] domain domain_of(std::size_t k) const {
        auto const found = case_.domains.find(k);
        return found == case_.domains.end() ? domain{} : found->second;
    }
    [[nodiscard]] bool is_constant(std::size_t k) const {
        return !is_floating(domain_of(k).type) || std::ranges::find(case_.constants, k) != case_.constants.end();
    }

    program build() {
        program_builder b;
        traced_call call{"op", case_.target, case_.arguments, case_.keywords, {}, {}};
        for (std::size_t k = 0; k < case_.operands.size(); ++k) {
            auto const name = "w" + std::to_string(k);
            call.operands.push_back(is_constant(k) ? b.buffer(name, case_.operands[k], domain_of(k).type)
                                                   : b.parameter(name, case_.operands[k]));
        }
        for (auto const& s : case_.results) call.results.push_back({s, element_type::float32});
        auto const added = add_call(b, call);
        CHECK(added.is_known != case_.is_blocked);
        std::vector<tensor_id> sums;
        auto const add_sum = [&](tensor_id t) {
            if (around_ == neighbours::factoring) t = factored(b, t);
            std::vector<detail::entries> const all{detail::numbered(b.tensor(t).shape)};
            sums.push_back(b.apply("sum", detail::rule_text(all, {{}}, "0"), {t}));
        };
        std::ranges::for_each(added.results, add_sum);
        if (around_ == neighbours::factoring) std::ranges::for_each(call.operands, add_sum);
        std::vector<detail::entries> const scalars(sums.size());
        return b.finish(
            b.apply("total", detail::rule_text(scalars, {{}}, detail::all_terms(sums.size(), " + ")), sums));
    }

    /// The tensor with its even dimensions seen as two times a half.
    static tensor_id factored(program_builder& b, tensor_id t) {
        tensor_info const info = b.tensor(t);
        tensor_shape dims;
        for (extent e : info.shape)
            if (e % 2 == 0 && e > 2) dims.insert(dims.end(), {2, e / 2});
            else dims.push_back(e);
        if (dims == info.shape) return t;
        return add_call(b, {"view of " + info.name, "view", {T(t)}, {}, {t}, {{dims, info.type}}}).results[0];
    }

    dense draw(tensor_shape const& dims, domain d) {
        dense t(dims);
        std::uniform_real_distribution<double> uniform(d.low, d.high);
        for (auto& v : t.data) v = is_floating(d.type) ? uniform(random_) : std::floor(uniform(random_));
        return t;
    }
    static std::vector<dense const*> view(std::vector<dense> const& list) {
        std::vector<dense const*> pointers;
        for (auto const& t : list) pointers.push_back(&t);
        return pointers;
    }

    double objective(std::vector<dense> const& x) const {
        auto const y = backend_.forward(call_, view(x));
        double sum = 0;
        for (std::size_t r = 0; r < y.size(); ++r)
            for (extent n = 0; n < y[r].elements(); ++n) sum += y[r][n] * g_[r][n];
        return sum;
    }

    void check_derivatives() {
        constexpr double step = 1e-5;
        for (std::size_t k = 0; k < x_.size(); ++k) {
            if (is_constant(program_.operands(0)[k])) continue;
            CAPTURE(k);
            REQUIRE(dx_[k].has_value());
            REQUIRE(dx_[k]->dims == x_[k].dims);
            auto x = x_;
            extent const skip = std::max<extent>(1, x[k].elements() / 60);
            for (extent n = 0; n < x[k].elements(); n += skip) {
                double const at = x[k][n];
                x[k][n] = at + step;
                double const above = objective(x);
                x[k][n] = at - step;
                double const below = objective(x);
                x[k][n] = at;
                double const difference = (above - below) / (2 * step);
                CHECK(std::abs(difference - (*dx_[k])[n]) <= 1e-6 * std::max(1.0, std::abs(difference)));
            }
        }
    }

    static bool close(dense const& a, dense const& b) {
        if (a.dims != b.dims) return false;
        double scale = 1;
        for (double v : b.data) scale = std::max(scale, std::abs(v));
        for (extent n = 0; n < a.elements(); ++n)
            if (!(std::abs(a[n] - b[n]) <= 1e-10 * scale)) return false;
        return true;
    }

    /// Returns ranges of a loop for each rank: they are uneven, and some are empty.
    std::vector<std::pair<extent, extent>> ranges(extent size, std::size_t ranks) {
        std::vector<extent> cuts{0, size};
        for (std::size_t r = 1; r < ranks; ++r) cuts.push_back(std::uniform_int_distribution<extent>(0, size)(random_));
        std::ranges::sort(cuts);
        std::vector<std::pair<extent, extent>> result;
        for (std::size_t r = 0; r < ranks; ++r) result.emplace_back(cuts[r], cuts[r + 1] - cuts[r]);
        return result;
    }

    factor const& factor_of(tensor_id t, tensor_form f) const {
        return indexed_.tensors[t].factors[static_cast<std::size_t>(f.factor())];
    }

    /// Returns what the ranks hold of a tensor in a form.
    std::vector<dense> distribute(dense const& whole, tensor_id t, tensor_form f,
                                  std::vector<std::pair<extent, extent>> const& parts) {
        std::vector<dense> held;
        for (auto [begin, count] : parts) {
            if (f.is_shard()) held.push_back(take(whole, factor_of(t, f), begin, count));
            else if (f != tensor_form::partial()) held.push_back(whole);
            else if (held.size() + 1 < parts.size()) held.push_back(draw(whole.dims, {}));
            else {
                dense last = whole;
                for (auto const& summand : held)
                    for (extent n = 0; n < last.elements(); ++n) last[n] -= summand[n];
                held.push_back(std::move(last));
            }
        }
        return held;
    }
    /// Tells whether what the ranks hold in a form makes up the whole.
    bool makes_up(std::vector<dense> const& held, dense const& whole, tensor_id t, tensor_form f,
                  std::vector<std::pair<extent, extent>> const& parts) {
        dense sum(whole.dims);
        for (std::size_t r = 0; r < held.size(); ++r) {
            if (f.is_shard()) {
                if (held[r].dims != part_shape(whole.dims, factor_of(t, f), parts[r].second)) return false;
                put(sum, factor_of(t, f), parts[r].first, parts[r].second, held[r]);
            } else if (held[r].dims != whole.dims) {
                return false;
            } else if (f == tensor_form::partial()) {
                sum += held[r];
            } else if (!close(held[r], whole)) {
                return false;
            }
        }
        return (!f.is_shard() && f != tensor_form::partial()) || close(sum, whole);
    }
    static tensor_form dual(tensor_form f) {
        return f == tensor_form::replicated() ? tensor_form::partial()
               : f == tensor_form::partial()  ? tensor_form::replicated()
                                              : f;
    }

    /// Runs ranks that combine statistics: each of those that the loop states is combined once, in order.
    template <class Run>
    static void run_together(split_loop const& loop, std::size_t ranks, Run const& run_rank) {
        std::size_t const stated = loop.forward_statistics + loop.backward_statistics;
        run_ranks(ranks, [&](in_process_communicator& communicator) {
            std::vector<dense> known;
            run_rank(communicator.rank(), [&](std::size_t which, reduction how, dense& rows) {
                if (which >= known.size()) {
                    if (which != known.size()) throw error("a statistic is passed over");
                    communicator.all_reduce(rows.flat(), how);
                    known.push_back(rows);
                }
                rows = known[which];
            });
            if (known.size() != stated) throw error("combines another number of statistics than its rule states");
        });
    }

    void check_distributed(instruction::compute const& i, std::size_t ranks) {
        std::string description = "loop " + std::to_string(i.loop) + " on " + std::to_string(ranks) + " ranks:";
        for (tensor_form f : i.operands) description += " " + to_string(f);
        description += " ->";
        for (tensor_form f : i.results) description += " " + to_string(f);
        auto const& op = indexed_.operators[0];
        split_loop const* loop = i.loop < 0 ? nullptr : &op.loops[static_cast<std::size_t>(i.loop)];
        auto const parts = ranges(loop ? loop->extent : 1, ranks);
        for (auto [begin, count] : parts)
            description += " [" + std::to_string(begin) + ", +" + std::to_string(count) + ")";
        CAPTURE(description);

        std::vector<std::vector<dense>> x, g, y(y_.size(), std::vector<dense>(ranks));
        std::vector<std::vector<std::optional<dense>>> dx(ranks);
        for (std::size_t k = 0; k < x_.size(); ++k)
            x.push_back(distribute(x_[k], op.operands[k], i.operands[k], parts));
        for (std::size_t k = 0; k < g_.size(); ++k)
            g.push_back(distribute(g_[k], op.results[k], dual(i.results[k]), parts));
        auto const run_rank = [&](std::size_t r, auto const& combine) {
            auto const of_rank = [&](std::vector<std::vector<dense>> const& all) {
                std::vector<dense> mine;
                for (auto const& held : all) mine.push_back(held[r]);
                return mine;
            };
            tensor_call<dense> call =
                loop ? split_call(program_, indexed_, 0, *loop, parts[r].first, parts[r].second, call_.random.seed)
                     : whole_call(program_, 0, call_.random.seed);
            call.combine = combine;
            auto const mine = of_rank(x), cotangents = of_rank(g);
            auto const results = backend_.forward(call, view(mine));
            dx[r] = backend_.backward(call, view(mine), view(results), view(cotangents));
            for (std::size_t k = 0; k < results.size(); ++k) y[k][r] = results[k];
        };
        if (loop && loop->forward_statistics > 0) run_together(*loop, ranks, run_rank);
        else
            for (std::size_t r = 0; r < ranks; ++r) run_rank(r, nullptr);
        for (std::size_t k = 0; k < y_.size(); ++k) {
            CAPTURE(k);
            CHECK(makes_up(y[k], y_[k], op.results[k], i.results[k], parts));
        }
        for (std::size_t k = 0; k < x_.size(); ++k) {
            if (is_constant(program_.operands(0)[k])) continue;
            CAPTURE(k);
            std::vector<dense> held;
            for (auto const& of_rank : dx) held.push_back(of_rank[k].value());
            // A split operator's own share of a mirrored parameter's gradient is a summand of it.
            bool const is_share = gathers_factors(i) && i.operands[k] == tensor_form::mirrored();
            CHECK(makes_up(held, *dx_[k], op.operands[k], is_share ? tensor_form::partial() : dual(i.operands[k]),
                           parts));
        }
    }

    operator_case case_;
    neighbours around_;
    std::mt19937 random_;
    program program_;
    indexed_program indexed_;
    case_kernels const& backend_;
    tensor_call<dense> call_;
    std::vector<dense> x_, y_, g_;
    std::vector<std::optional<dense>> dx_;
};

inline void check(operator_case const& c) {
    CAPTURE(c.target);
    for (unsigned seed = 1; seed <= 3; ++seed) {
        CAPTURE(seed);
        for (auto around : {neighbours::none, neighbours::factoring})
            operator_check(c, seed, around, checked_kernels()).run();
    }
}

} // namespace heddle::test
