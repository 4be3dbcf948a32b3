// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Small random programs and clusters, the same for a seed on every platform.
#pragma once

#include <heddle/cluster/cluster.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/instruction.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

/// The random numbers of a seed. The standard fixes the engine, but not the distributions, so those are this class's
/// own.
class random_source {
public:
    explicit random_source(std::uint64_t seed) : engine_(seed * 0x9e3779b97f4a7c15u + 1) {}
    /// Draws these numbers one after the other, then zeros: what is drawn with a zero is the least there is.
    explicit random_source(std::vector<std::uint64_t> numbers) : is_given_(true), given_(std::move(numbers)) {}

    /// Returns a whole number of [low, high].
    int between(int low, int high) {
        return low + static_cast<int>(bits() % static_cast<std::uint64_t>(high - low + 1));
    }
    std::size_t below(std::size_t size) { return static_cast<std::size_t>(bits() % size); }
    bool chance(double probability) { return unit() < probability; }
    /// Returns a number of [0, 1).
    double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
    double between(double low, double high) { return low + (high - low) * unit(); }
    double log_between(double low, double high) { return low * std::pow(high / low, unit()); }
    template <class T>
    T const& of(std::vector<T> const& list) {
        return list[below(list.size())];
    }

private:
    std::uint64_t bits() {
        if (!is_given_) return engine_();
        return at_ < given_.size() ? given_[at_++] : 0;
    }

    std::mt19937_64 engine_;
    bool is_given_ = false;
    std::vector<std::uint64_t> given_;
    std::size_t at_ = 0;
};

inline constexpr double infinite = std::numeric_limits<double>::infinity();

struct program_limits {
    /// The numbers of operators include the loss.
    int least_operators = 2, most_operators = 6;
    int most_extent = 6;
};

class random_program_builder {
public:
    random_program_builder(random_source& random, program_limits limits) : random_(random), limits_(limits) {}

    program build() {
        int const wanted = random_.between(limits_.least_operators, limits_.most_operators);
        start();
        while (operators_ + 1 < wanted) grow();
        finish_with_loss();
        return builder_.finish(last_);
    }

private:
    extent size() { return random_.chance(0.15) ? 1 : random_.between(2, limits_.most_extent); }
    tensor_info const& info(tensor_id t) { return builder_.tensor(t); }
    std::string fresh(char const* stem) { return stem + std::to_string(++names_); }

    tensor_id apply(char const* kind, std::string const& rule, std::vector<tensor_id> operands,
                    operator_options options = {}) {
        last_ = builder_.apply(kind, rule, std::move(operands), std::move(options));
        ++operators_;
        return last_;
    }
    /// Adds an operator whose result later ones may use.
    void add(char const* kind, std::string const& rule, std::vector<tensor_id> operands,
             operator_options options = {}) {
        bool const trained =
            std::ranges::any_of(operands, [&](tensor_id t) { return info(t).trainable || trained_.contains(t); });
        values_.push_back(apply(kind, rule, std::move(operands), std::move(options)));
        if (trained) trained_.insert(last_);
    }

    /// Returns a weight: a new one, or one of this shape that is there already; now and then it is frozen, or a buffer.
    tensor_id weight(tensor_shape const& dims, bool trained = false) {
        if (!trained && random_.chance(0.5))
            for (auto t : weights_)
                if (info(t).shape == dims) return t;
        if (!trained && random_.chance(0.12)) return builder_.buffer(fresh("buffer"), dims);
        weights_.push_back(
            builder_.parameter(fresh("weight"), dims, element_type::float32, trained || !random_.chance(0.2)));
        return weights_.back();
    }
    /// Returns a value to continue from: mostly the newest, so that little is left unused.
    tensor_id operand() { return random_.chance(0.65) ? values_.back() : random_.of(values_); }

    static std::string letters(std::size_t rank) {
        std::string text;
        for (std::size_t d = 0; d < rank; ++d) text += (d ? " " : "") + std::string(1, static_cast<char>('a' + d));
        return text;
    }

    void start() {
        if (random_.chance(0.2)) {
            bool const pair = random_.chance(0.5);
            auto const ids = builder_.input(fresh("ids"), pair ? tensor_shape{size(), size()} : tensor_shape{size()},
                                            element_type::int64);
            auto const table = weight({size(), size()}, true);
            operator_options options;
            options.saved_operands = {0};
            options.sparse_operands = {1};
            return add("embedding", pair ? "(a b), (v e) -> (a b e); 1" : "(a), (v e) -> (a e); 1", {ids, table},
                       std::move(options));
        }
        auto const x = builder_.input(fresh("x"), random_.chance(0.3) ? tensor_shape{size(), size(), size()}
                                                                      : tensor_shape{size(), size()});
        values_.push_back(x);
        linear(x, true);
    }

    void linear(tensor_id x, bool trained = false) {
        auto const dims = info(x).shape;
        if (dims.size() < 2) return unary(x);
        std::string const rows = dims.size() == 3 ? "b s" : "b";
        bool const bias = random_.chance(0.4), square = random_.chance(0.4);
        extent const n = square ? dims.back() : size();
        std::vector<tensor_id> operands{x, weight({n, dims.back()}, trained)};
        if (bias) operands.push_back(weight({n}));
        operator_options options;
        options.category = operator_class::matmul;
        add("linear",
            "(" + rows + " k), (n k)" + (bias ? ", (n)" : "") + " -> (" + rows + " n); 0*1" + (bias ? " + 2" : ""),
            operands, std::move(options));
    }

    void unary(tensor_id x) {
        std::string const all = letters(info(x).shape.size());
        operator_options options;
        options.category = operator_class::elementwise;
        double const choice = random_.unit();
        if (choice < 0.6) {
            options.saved_results = {0};
            std::string const others = all.substr(0, all.size() - 1), last = all.substr(all.size() - 1);
            if (choice < 0.15)
                return add("log_softmax", "(" + others + "~~" + last + ") -> (" + others + "~" + last + ")", {x},
                           std::move(options));
            return add("relu", "(" + all + ") -> (" + all + ")", {x}, std::move(options));
        }
        options.extra_saved = bytes(static_cast<double>(info(x).elements()));
        add("dropout", "(" + all + ") -> (" + all + "); 0", {x}, std::move(options));
    }

    void binary(tensor_id x) {
        std::vector<tensor_id> equal;
        for (auto t : values_)
            if (info(t).shape == info(x).shape) equal.push_back(t);
        auto const y = random_.chance(0.2) ? weight(info(x).shape) : random_.of(equal);
        std::string const all = letters(info(x).shape.size());
        bool const sum = random_.chance(0.5);
        operator_options options;
        options.category = operator_class::elementwise;
        add(sum ? "add" : "mul", "(" + all + "), (" + all + ") -> (" + all + ")" + (sum ? "; 0 + 1" : "; 0*1"), {x, y},
            std::move(options));
    }

    void product(tensor_id x) {
        auto const dims = info(x).shape;
        if (dims.size() != 2) return linear(x);
        std::vector<tensor_id> fitting;
        for (auto t : values_)
            if (info(t).shape.size() == 2 && info(t).shape[0] == dims[1]) fitting.push_back(t);
        auto const y = fitting.empty() || random_.chance(0.3) ? weight({dims[1], size()}) : random_.of(fitting);
        operator_options options;
        options.category = operator_class::matmul;
        add("matmul", "(a k), (k b) -> (a b); 0*1", {x, y}, std::move(options));
    }

    void reshape(tensor_id x) {
        auto const dims = info(x).shape;
        operator_options options;
        options.is_view = true;
        if (dims.size() == 3)
            return add("reshape", random_.chance(0.5) ? "(a b c) -> ((a b) c); 0" : "(a b c) -> (a (b c)); 0", {x},
                       std::move(options));
        if (dims.size() != 2) return unary(x);
        for (extent outer : {2, 3}) {
            if (dims[1] % outer != 0 || dims[1] == outer) continue;
            options.extents = {{"h", outer}};
            return add("reshape", "(a (h d)) -> (a h d); 0", {x}, std::move(options));
        }
        if (dims[0] * dims[1] > 36) return unary(x);
        add("reshape", "(a b) -> ((a b)); 0", {x}, std::move(options));
    }

    void layer_norm(tensor_id x) {
        auto const dims = info(x).shape;
        if (dims.size() < 2) return unary(x);
        std::string const rows = dims.size() == 3 ? "b s" : "b";
        operator_options options;
        options.category = operator_class::normalisation;
        options.saved_operands = {0, 1};
        std::vector<tensor_id> operands{x, weight({dims.back()})};
        bool const bias = random_.chance(0.5);
        if (bias) operands.push_back(weight({dims.back()}));
        add("layer_norm",
            "(" + rows + " !e), (!e)" + (bias ? ", (!e)" : "") + " -> (" + rows + " !e); 1" + (bias ? " + 2" : ""),
            operands, std::move(options));
    }

    void grow() {
        auto const x = operand();
        switch (random_.below(12)) {
        case 0:
        case 1:
        case 2: return linear(x);
        case 3:
        case 4: return unary(x);
        case 5:
        case 6: return binary(x);
        case 7:
        case 8: return product(x);
        case 9:
        case 10: return reshape(x);
        default: return layer_norm(x);
        }
    }

    /// Adds the sum, or a likelihood of targets, of the newest value that depends on a trained parameter.
    void finish_with_loss() {
        auto const x = *trained_.rbegin();
        auto const dims = info(x).shape;
        operator_options options;
        options.category = operator_class::reduction;
        if (double const choice = dims.size() == 2 ? random_.unit() : 1; choice < 0.4) {
            auto const target = builder_.input(fresh("target"), {dims[0]}, element_type::int64);
            options.saved_operands = {1};
            if (choice < 0.1) return void(apply("nll", "(a _), (a) -> (); 0", {x, target}, std::move(options)));
            if (choice < 0.2) return void(apply("nll", "(a c), (a) -> (); 0", {x, target}, std::move(options)));
            options.extra_saved = info(x).size();
            apply("cross_entropy", "(a ~~c), (a) -> ()", {x, target}, std::move(options));
        } else {
            apply("sum", "(" + letters(dims.size()) + ") -> (); 0", {x}, std::move(options));
        }
    }

    random_source& random_;
    program_limits limits_;
    program_builder builder_;
    std::vector<tensor_id> values_, weights_;
    std::set<tensor_id> trained_;
    tensor_id last_ = 0;
    int operators_ = 0, names_ = 0;
};

/// Returns a program whose loss depends on a trained parameter. Operators on which the loss does not depend are
/// removed, so it may have fewer than asked for.
[[nodiscard]] inline program random_program(random_source& random, program_limits limits = {}) {
    return random_program_builder(random, limits).build();
}

enum class memory_kind : bool { loose, tight };

struct cluster_limits {
    int most_types = 4, most_devices = 16;
    memory_kind memory = memory_kind::loose;
    /// Adds latencies and kernel overheads; without them everything is proportional to sizes.
    bool fixed_costs = true;
};

/// A cluster on which programs of tensors with some hundred bytes take seconds.
[[nodiscard]] inline cluster random_cluster(random_source& random, cluster_limits limits = {}) {
    cluster c;
    c.name = "random";
    int const types = random.between(1, limits.most_types);
    for (int t = 0; t < types; ++t) {
        device_type type;
        type.name = std::string(1, static_cast<char>('A' + t));
        type.memory = bytes(limits.memory == memory_kind::loose ? 1e12 : random.log_between(50, 1500));
        type.bandwidth = bytes_per_second(random.log_between(1e3, 1e5));
        type.overhead = seconds(limits.fixed_costs && random.chance(0.5) ? random.log_between(1e-4, 1e-2) : 0);
        auto& table = type.rates[element_type::float32];
        table.fallback = flops_per_second(random.log_between(1e3, 1e5));
        if (random.chance(0.3)) {
            flops_per_second const rate(random.log_between(1e3, 1e5));
            table.by_class[operator_class::matmul] = {rate, 0.75 * type.bandwidth, 2 * type.overhead};
            table.by_operator[{"linear", true}] = {0.5 * rate, {}, {}};
        }
        c.types.push_back(std::move(type));
    }
    int left = random.between(types, std::max(types, limits.most_devices));
    if (random.chance(0.5)) left = std::min(left, types + 2);
    for (int t = 0; t < types; ++t) {
        machine_group group;
        group.type = static_cast<std::size_t>(t);
        int const devices = t + 1 == types ? left : random.between(1, left - (types - 1 - t));
        if (devices % 2 == 0 && random.chance(0.5)) {
            group.devices = 2;
            group.count = devices / 2;
        } else {
            group.count = devices;
        }
        left -= devices;
        c.machines.push_back(group);
    }
    auto const link = [&] {
        return network_link{bytes_per_second(random.log_between(1e3, 1e5)),
                            seconds(limits.fixed_costs && random.chance(0.5) ? random.log_between(1e-4, 1e-2) : 0)};
    };
    c.intra = link();
    c.inter = link();
    for (std::size_t k = 0; k < collective_count; ++k) {
        if (!random.chance(0.15)) continue;
        auto& pieces = c.measured[static_cast<collective>(k)].pieces;
        for (int n = random.between(1, 2); n-- > 0;)
            pieces.push_back({seconds(limits.fixed_costs ? random.log_between(1e-4, 1e-1) : 0),
                              seconds_per_byte(random.log_between(1e-5, 1e-3))});
    }
    validate(c);
    return c;
}

/// Measures some collectives inside machines and along lines of them, at random around what their links say. What else is
/// drawn stays.
inline void measure_lines(random_source random, cluster& c) {
    auto const measure = [&](measured_collectives& along, network_link const& link) {
        along.devices = random.between(2, 8);
        for (std::size_t k = 0; k < collective_count; ++k) {
            if (!random.chance(0.5)) continue;
            auto const kind = static_cast<collective>(k);
            auto const line = line_inside(kind, along.devices, link);
            auto& pieces = along.models[kind].pieces;
            for (int n = random.between(1, 2); n-- > 0;) {
                auto const latency = random.log_between(0.3, 3) * line.latency;
                pieces.push_back({latency, random.log_between(0.3, 3) * line.slope});
            }
        }
    };
    measure(c.measured_inside, *c.intra);
    measure(c.measured_across, *c.inter);
    validate(c);
}

/// Lets the efficiency of products and element-wise kernels depend on their size, by curves half of which are convex.
inline void add_efficiencies(random_source& random, cluster& c) {
    for (auto& type : c.types)
        for (auto kind : {operator_class::matmul, operator_class::elementwise})
            type.rates[element_type::float32].by_class[kind].efficiency =
                saturation{flops(random.log_between(1, 1e4)), random.chance(0.5) ? 0.0 : random.log_between(0.01, 0.9)};
    validate(c);
}

// ---- for messages

[[nodiscard]] inline std::string describe(program const& p) {
    std::ostringstream out;
    for (operator_id o = 0; o < p.operator_count(); ++o) {
        auto const list = [&](auto const& tensors) {
            for (auto t : tensors) {
                auto const& info = p.tensor(t);
                out << ' ' << t << '[';
                for (auto e : info.shape) out << ' ' << e;
                out << " ]";
                if (info.role == tensor_role::parameter) out << (info.trainable ? "p" : "frozen");
                if (info.role == tensor_role::buffer) out << "b";
                if (info.role == tensor_role::input) out << "i";
            }
        };
        out << "  " << p.name(o) << ':';
        list(p.operands(o));
        out << " ->";
        list(p.results(o));
        out << '\n';
    }
    return out.str();
}

[[nodiscard]] inline std::string describe(cluster const& c) {
    std::ostringstream out;
    out.precision(17);
    for (auto const& m : c.machines) {
        auto const& t = c.types[m.type];
        auto const& table = t.rates.at(element_type::float32);
        out << "  " << m.count << " x " << m.devices << ' ' << t.name << ": memory " << t.memory.value << ", bandwidth "
            << t.bandwidth.value << ", overhead " << t.overhead.value << ", rate " << table.fallback.value
            << ", matmul " << table.at(operator_class::matmul).value << '\n';
    }
    if (c.intra) out << "  intra " << c.intra->bandwidth.value << ' ' << c.intra->latency.value << '\n';
    if (c.inter) out << "  inter " << c.inter->bandwidth.value << ' ' << c.inter->latency.value << '\n';
    auto const list = [&](std::map<collective, collective_model> const& models) {
        for (auto const& [kind, model] : models) {
            out << "  " << name(kind);
            for (auto const& p : model.pieces) out << " (" << p.latency.value << " + " << p.slope.value << " per byte)";
            out << '\n';
        }
    };
    list(c.measured);
    if (!c.measured_inside.models.empty()) out << "  inside, " << c.measured_inside.devices << " devices\n";
    list(c.measured_inside.models);
    if (!c.measured_across.models.empty()) out << "  across " << c.measured_across.devices << " machines\n";
    list(c.measured_across.models);
    return out.str();
}

[[nodiscard]] inline std::string describe(instruction const& i) {
    std::ostringstream out;
    auto const list = [&](form_list const& forms) {
        for (auto f : forms) out << ' ' << to_string(f);
    };
    auto const change = [&](char const* what, form_change const& c) {
        out << what << ' ' << c.tensor << ' ' << to_string(c.from) << " -> " << to_string(c.to);
    };
    i.visit(
        [&](instruction::read const& r) {
            out << "read " << r.tensor << ' ' << to_string(r.to)
                << (r.from == r.to ? "" : ", state " + to_string(r.from));
        },
        [&](instruction::convert const& c) { change("convert", c); },
        [&](instruction::unshard const& u) {
            change("unshard", u);
            out << (u.is_resharded ? ", twice" : "");
        },
        [&](instruction::reshard const& r) { change("reshard", r); },
        [&](instruction::compute const& c) {
            out << "compute " << c.op << ':';
            list(c.operands);
            out << " ->";
            list(c.results);
        });
    return out.str();
}

} // namespace heddle::test
