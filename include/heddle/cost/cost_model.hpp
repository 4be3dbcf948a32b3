// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Steps in seconds and bytes, per class of devices.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/cost/saturated_work.hpp>
#include <heddle/cost/step.hpp>

#include <boost/container/small_vector.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// The share of a split quantity on each device class, summing to one over devices.
using share_vector = std::vector<double>;

/// Devices that behave alike: they are of one type, have equal shares of everything, and are groups of one size.
struct device_class {
    std::size_t type = 0;
    int count = 1;
    int group_size = 1;
};

/// Holds one number per device class.
using per_class = boost::container::small_vector<double, 4>;

/// Returns the bytes that a transfer carries: the payload of its busiest rank, padding included, given the largest
/// share before and after. Shards are padded unless the transfer says otherwise.
[[nodiscard]] bytes payload(transfer const& t, int ranks, double largest_from, double largest_to);

/// Tells whether nothing moves: one rank has nothing to send, and a redistribution to equal shares moves nothing.
template <class Shares>
[[nodiscard]] bool is_idle(transfer const& t, int ranks, Shares const& shares) {
    return ranks == 1 || (t.redistributes && algorithm::equal(shares(t.from), shares(t.to)));
}

/// As above, where `shares(ref)` returns the shares of a split quantity.
template <class Shares>
[[nodiscard]] bytes payload(transfer const& t, int ranks, Shares const& shares) {
    if (is_idle(t, ranks, shares)) return bytes(0);
    auto const largest = [&](share_ref ref) { return ref.is_split() ? algorithm::max(shares(ref)) : 1; };
    return payload(t, ranks, largest(t.from), largest(t.to));
}

/// Tells whether a gradient's collective is put together with others: it is a reduction of less than a bucket.
[[nodiscard]] inline bool fits_bucket(transfer const& t, bytes bucket) {
    return (t.kind == collective::all_reduce || t.kind == collective::reduce_scatter) && t.size < bucket;
}

/// Returns what is cut into the shards that a gather or scatter moves.
[[nodiscard]] inline share_ref moved_cut(transfer const& t) { return t.kind == collective::all_gather ? t.from : t.to; }
/// Tells whether every rank's shard is moved by an operation of its own.
[[nodiscard]] inline bool is_one_by_one(transfer const& t) {
    return t.how == uneven::grouped && moved_cut(t).is_split();
}

/// What the speed of a kernel depends on: the type of its elements and its operator class or, where a device has speeds
/// of single kinds of operators, the kind and the pass.
struct kernel_kind {
    element_type type = element_type::float32;
    operator_class category = operator_class::other;
    std::string_view operator_kind{};
    bool is_backward = false;
};

/// Returns what the speed of a step's forward kernel depends on, or that of its backward and deferred kernels.
[[nodiscard]] inline kernel_kind kernel_of(step_work const& s, bool is_backward) {
    return {s.type, s.category, s.kind, is_backward};
}

/// What is in a bucket of gradients: the bytes that its collective carries and, if every rank's shard has an operation
/// of its own, the bytes of each class's shard.
struct bucket_load {
    bytes payload;
    per_class shards;
    bucket_load& operator+=(bucket_load const& other);
};

/// The costs of a step in seconds and bytes. Communication is one number; local work is one number per class.
struct step_cost {
    double forward_transfer = 0, backward_transfer = 0, deferred = 0;
    /// `update` is the work that follows the deferred transfers.
    per_class forward, backward, update;
    /// The memory that stays: what is stored, and what is saved beside whole tensors.
    per_class memory;
    /// The largest communication buffer in bytes; a buffer holds all transfers of one direction.
    double buffer = 0;
    /// The bytes of copies that are unsharded for the next computation.
    double transient = 0;
    /// The transfers after the update.
    double refresh = 0;
    /// See `step_work`.
    bool once = false, waits = false;
};

/// Tracks the most bytes that come and go in a program: the copies unsharded for one operator and, beside them, their
/// gradients or a communication buffer. Steps are added in order.
class momentary_memory {
public:
    void add(instruction::kind what, step_cost const& s);
    [[nodiscard]] double most() const { return most_; }

private:
    double copies_ = 0, most_ = 0;
    bool computed_ = false;
};

/// Prices steps on a cluster. It holds rates per class and is cheap to copy; const calls are thread-safe.
class cost_model {
public:
    /// Prices work and memory of the first `clocks` classes; all classes take part in collectives. So prices with fewer
    /// clocks are lower bounds of those with all. Element type `main` stands in for types that have no rates of their
    /// own. `reduction` is that of `training_options`.
    /// *Precondition:* `validate(c)` passed. *Throws* `input_error` if a device type has no rate for `main`.
    cost_model(cluster const& c, std::vector<device_class> classes, element_type main = element_type::float32,
               gradient_reduction reduction = {}, std::size_t clocks = std::numeric_limits<std::size_t>::max());

    /// Returns the number of classes whose work and memory are priced.
    [[nodiscard]] std::size_t class_count() const { return clocks_; }
    [[nodiscard]] std::vector<device_class> const& classes() const { return classes_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] bytes bucket() const { return bucket_; }
    /// Returns the part of a reduction of gradients and of an update that one run of the program pays.
    [[nodiscard]] double part_of_update() const { return part_of_update_; }
    [[nodiscard]] double memory_limit(std::size_t k) const { return speeds(k).memory; }
    [[nodiscard]] collective_model const& model(collective kind) const {
        return models_[static_cast<std::size_t>(kind)];
    }
    /// Tells whether the efficiency of some class depends on the size of kernels.
    [[nodiscard]] bool has_curves() const { return has_curves_; }
    /// What kernels of an operator class reach: flops and bytes per second, and the seconds to start one.
    struct roofline {
        double rate = 1, bandwidth = 1, overhead = 0;
        std::optional<saturation> efficiency{};
        std::vector<measured_kernel> measured{};
        /// Returns what kernels reach that take so many times as long.
        [[nodiscard]] roofline times(double factor) const {
            return {rate / factor, bandwidth / factor, overhead * factor, efficiency, {}};
        }
        /// Returns the seconds of a part of a kernel's arithmetic, if it has any.
        [[nodiscard]] double arithmetic(flops work, double part) const;
        /// Returns the arithmetic of a kernel as a function of the device's share of it. *Precondition:* there is an
        /// `efficiency`.
        [[nodiscard]] saturated_work arithmetic_curve(flops work) const {
            return {work.value / rate, work / efficiency->scale, *efficiency};
        }
    };
    [[nodiscard]] roofline const& speed(std::size_t k, kernel_kind const& kernel) const;
    /// Returns what one kernel reaches: if it was measured, whole or a half of what is split, as much as it did then.
    [[nodiscard]] roofline speed(std::size_t k, kernel_kind const& kernel, local_work const& work) const;
    /// Returns the memory bandwidth in bytes per second.
    [[nodiscard]] double bandwidth(std::size_t k) const { return speeds(k).bandwidth; }

    /// Returns the roofline time of a kernel on a class with share `s` of what is split; in a group, the time on each
    /// of its devices.
    [[nodiscard]] double time(local_work const& work, std::size_t k, kernel_kind const& kernel, bool split,
                              double s) const;
    /// Returns a time that is convex in the share: the maximum of `lines_below` in place of the roofline. It is
    /// `time(...)`, or less if the class's efficiency depends on the size.
    [[nodiscard]] double least_time(local_work const& work, std::size_t k, kernel_kind const& kernel, bool split,
                                    double s) const;
    /// Returns lines in a class's share of a split kernel, for arithmetic and for memory traffic. No line is above the
    /// larger of the two times; the largest line is equal to it unless efficiency depends on the size.
    [[nodiscard]] std::vector<work_line> lines_below(local_work const& work, std::size_t k,
                                                     kernel_kind const& kernel) const;
    /// Returns the time of the small kernels beside a kernel, which are taken as element-wise; see `on_member` for the
    /// share.
    [[nodiscard]] work_line beside(local_work const& work, std::size_t k, element_type e,
                                   std::optional<double> share = std::nullopt) const;

    /// Returns the most work that a device of a group has whose share is given. Without a share, samples that groups
    /// share are cut evenly, which at no share is more. Of a single device it is all.
    [[nodiscard]] local_work on_member(local_work work, std::size_t k,
                                       std::optional<double> share = std::nullopt) const;
    /// As above, of what a device holds.
    [[nodiscard]] holding on_member(holding h, std::size_t k, std::optional<double> share = std::nullopt) const;

    /// The time of a step inside a group: the longest of lines in the bytes of the whole tensor, each so many latencies
    /// and passes of a hop.
    struct inside_time {
        std::span<collective_model::piece const> hops;
        double latencies = 0, passes = 0;

        [[nodiscard]] double operator()(double whole) const {
            double most = 0;
            for (auto const& hop : hops)
                most = std::max(most, latencies * hop.latency.value + passes * hop.slope.value * whole);
            return most;
        }
        /// Calls `visit(constant, slope)` for the lines of a tensor of so many bytes, in the share of some of them.
        template <class Visit>
        void for_each_line(double whole, double split, Visit&& visit) const {
            for (auto const& hop : hops) {
                double const per_byte = passes * hop.slope.value;
                visit(latencies * hop.latency.value + per_byte * whole, per_byte * split);
            }
        }
    };
    /// Returns the time of a step inside a group; zero on a single device. It is valid as long as the model is.
    [[nodiscard]] inside_time inside(inside_step kind, std::size_t k) const {
        auto const& [latencies, passes] = speeds(k).inside[static_cast<std::size_t>(kind)];
        // Around joined machines every hop counts as one between them.
        return {joined_ > 1 ? std::span(&between_, 1) : hops_inside(kind), latencies.value, passes.value};
    }
    /// As above, among the devices that a transfer names. Lines that leave a machine of a group share its network
    /// cards.
    [[nodiscard]] inside_time inside(inside_transfer const& t, std::size_t k) const {
        return t.members > 0 && t.members != classes_[k].group_size ? inside_part(t, k) : inside(t.kind, k);
    }
    /// Returns the seconds of all transfers of a list inside a class's groups, with share `s` of what is split.
    [[nodiscard]] double time(inside_list const& list, std::size_t k, double s) const;

    /// Returns the seconds of a transfer. Shards are padded unless it is decided how they move. `shares(ref)` returns
    /// the per-class shares of a split quantity. Device groups wait for each other after each of its three steps.
    template <class Shares>
    [[nodiscard]] double time(transfer const& t, Shares const& shares) const {
        if (t.redistributes && is_idle(t, ranks_, shares)) return 0;
        return time_across(t, shares) + time_inside_groups(t.before, t.size, t.from, shares) +
               time_inside_groups(t.after, t.size, t.to, shares);
    }
    /// Returns the time of the slowest group.
    template <class Shares>
    [[nodiscard]] double time_inside_groups(inside_step kind, bytes size, share_ref cut, Shares const& shares) const {
        if (kind == inside_step::none || !has_groups_) return 0;
        share_vector const* const share = cut.is_split() ? &shares(cut) : nullptr;
        double most = 0;
        for (std::size_t k = 0; k < classes_.size(); ++k) {
            most = std::max(most, inside(kind, k)(size.value * (share ? (*share)[k] : 1)));
        }
        return most;
    }
    /// Returns how many times longer than alone the bytes of a transfer take beside those of the other lines.
    [[nodiscard]] double crowding(transfer const& t) const {
        return t.lines > network_cards_ ? static_cast<double>(t.lines) / network_cards_ : 1;
    }
    /// Returns the time of the collective alone. A reduction to one rank is charged as a broadcast from it.
    template <class Shares>
    [[nodiscard]] double time_across(transfer const& t, Shares const& shares) const {
        if (is_idle(t, ranks_, shares)) return 0;
        if (!is_one_by_one(t)) return model(t.kind).time(payload(t, ranks_, shares) * crowding(t)).value;
        auto const& share = shares(moved_cut(t));
        double sum = 0;
        for (std::size_t k = 0; k < classes_.size(); ++k)
            sum += classes_[k].count * model(collective::broadcast).time(t.size * share[k] * crowding(t)).value;
        return sum;
    }
    /// Returns the part of a full bucket that a gradient takes; 1 if it fits into none and is sent alone.
    [[nodiscard]] double part_of_bucket(transfer const& t) const {
        return fits_bucket(t, bucket_) ? t.size / bucket_ : 1;
    }
    /// Returns what a gradient adds to the time of its bucket: its own bytes, and its part of a full bucket's latency,
    /// both on the line that a full bucket is on. So a bucket takes no less than the sum over its gradients: no line is
    /// above the collective's time, and latencies are not negative.
    template <class Shares>
    [[nodiscard]] double time_in_bucket(transfer const& t, Shares const& shares) const {
        if (!fits_bucket(t, bucket_)) return time(t, shares) * part_of_update_;
        if (is_idle(t, ranks_, shares)) return 0;
        auto const& line = is_one_by_one(t) ? shard_of_full_bucket_ : of_full_bucket_[static_cast<std::size_t>(t.kind)];
        return latency_of_bucket(t) * part_of_bucket(t) +
               line.slope.value * payload(t, ranks_, shares).value * crowding(t) * part_of_update_;
    }
    /// Returns what a gradient puts into its bucket. Each padded shard is padded by itself. *Precondition:* it is
    /// decided how its shards move.
    template <class Shares>
    [[nodiscard]] bucket_load load(transfer const& t, Shares const& shares) const {
        bucket_load result{payload(t, ranks_, shares), {}};
        for (std::size_t k = 0; k < classes_.size() && is_one_by_one(t); ++k)
            result.shards.push_back(t.size.value * shares(moved_cut(t))[k]);
        return result;
    }
    /// Returns the time of one collective for several gradients of the kind of the first, which fits a bucket.
    [[nodiscard]] double time_of_bucket(transfer const& first, bucket_load const& all) const;
    /// Returns a lower bound of what a bucket takes beyond the times of its gradients' bytes; see `time_in_bucket`.
    [[nodiscard]] double latency_of_bucket(transfer const& t) const;
    /// A transfer and its seconds.
    struct timed_transfer {
        transfer what;
        double seconds = 0;
    };
    /// Chooses the faster way of moving shards at these shares, and padding if both are equal however devices are put
    /// into classes. A transfer whose way is decided stays as it is. A gradient in a bucket moves in the way that is
    /// best for the gradient alone, so that a program that reduces it at once is not faster because of its way.
    template <class Shares>
    [[nodiscard]] timed_transfer decided(transfer t, Shares const& shares, bool is_gradient = false) const {
        if (!t.how && has_grouped_kind(t.kind)) {
            transfer grouped = t;
            t.how = uneven::padded;
            grouped.how = uneven::grouped;
            double const each = time(grouped, shares), padded = time(t, shares);
            bool const is_faster = each < padded * (1 - 1e-12);
            if (is_faster) t = grouped;
            if (!is_gradient) return {t, is_faster ? each : padded};
        }
        return {t, is_gradient ? time_in_bucket(t, shares) : time(t, shares)};
    }
    template <class Shares>
    [[nodiscard]] step_work decided(step_work s, Shares const& shares) const {
        for_each_transfer(s, [&](transfer& t) { t = decided(t, shares).what; });
        return s;
    }

    /// Prices one step; a gradient costs what it adds to its bucket. *Complexity.* Linear in the classes.
    template <class Shares>
    [[nodiscard]] step_cost price(step_work const& s, Shares const& shares) const {
        step_cost cost;
        auto const add = [&](transfer_list const& transfers, double& into, bool are_gradients = false) {
            double together = 0; // what one list brings is there at once
            for (auto const& t : transfers) {
                auto const chosen = decided(t, shares, are_gradients);
                into += chosen.seconds;
                together += payload(chosen.what, ranks_, shares).value;
            }
            cost.buffer = std::max(cost.buffer, together);
        };
        add(s.forward_transfers, cost.forward_transfer);
        add(s.backward_transfers, cost.backward_transfer);
        add(s.deferred_transfers, cost.deferred, s.reduces_gradients());
        add(s.update_transfers, cost.refresh);
        cost.refresh *= part_of_update_;
        cost.transient = s.transient.value;
        cost.once = s.once;
        cost.waits = s.waits;
        bool const split = s.share.is_split();
        share_vector const* const share = split ? &shares(s.share) : nullptr;
        for (std::size_t k = 0; k < class_count(); ++k) {
            double const mine = split ? (*share)[k] : 1;
            cost.forward.push_back(time(s.forward, k, kernel_of(s, false), split, mine));
            cost.backward.push_back(time(s.backward, k, kernel_of(s, true), split, mine) +
                                    (s.runs_again ? cost.forward.back() : 0));
            cost.update.push_back(time(s.deferred, k, kernel_of(s, true), false, 1) +
                                  at(s.update, mine) / bandwidth(k) * part_of_update_);
            cost.memory.push_back(at(on_member(s.stored, k, mine), mine) +
                                  s.counted * at(on_member(s.saved, k, mine), mine));
            if (classes_[k].group_size == 1) continue;
            cost.forward.back() += time(s.inside_forward, k, mine);
            cost.backward.back() += time(s.inside_backward, k, mine);
            cost.update.back() += time(s.inside_update, k, mine) * part_of_update_;
            for (auto const* list : {&s.inside_forward, &s.inside_backward, &s.inside_update})
                for (auto const& t : *list) cost.buffer = std::max(cost.buffer, t.whole.value + t.split.value * mine);
        }
        return cost;
    }

    [[nodiscard]] static double at(holding const& h, double share) { return h.whole.value + h.split.value * share; }

private:
    struct class_speeds {
        double bandwidth = 1, memory = 0;
        /// By step the latencies and passes of a group.
        std::array<collective_model::piece, inside_step_count> inside{};
        std::array<std::array<roofline, operator_class_count>, element_type_count> by_class{};
        std::array<std::map<operator_pass, roofline>, element_type_count> by_operator{};
    };

    [[nodiscard]] std::span<collective_model::piece const> hops_inside(inside_step kind) const {
        auto const& hops = hops_inside_[static_cast<std::size_t>(collective_of(kind))];
        return {hops.data(), hops.size()};
    }
    /// Returns the time of a transfer among a part of a group.
    [[nodiscard]] inside_time inside_part(inside_transfer const& t, std::size_t k) const;
    [[nodiscard]] class_speeds const& speeds(std::size_t k) const { return speeds_[speed_of_[k]]; }
    /// Returns the part that a device has of what its group cuts of a split quantity; see `on_member`.
    [[nodiscard]] double part_of_split(samples_inside const& samples, std::size_t k, std::optional<double> share) const;

    std::vector<device_class> classes_;
    std::size_t clocks_;
    /// Holds the speeds of the types of the classes, and by class the number of its type.
    std::vector<class_speeds> speeds_;
    std::vector<std::size_t> speed_of_;
    std::array<collective_model, collective_count> models_;
    bytes bucket_;
    double part_of_update_ = 1;
    /// The collective of a full bucket, and that of one rank's shard of it.
    std::array<collective_model::piece, collective_count> of_full_bucket_{};
    collective_model::piece shard_of_full_bucket_{};
    /// The lines of a hop inside a machine, by collective, and that between machines.
    std::array<boost::container::small_vector<collective_model::piece, 1>, collective_count> hops_inside_{};
    collective_model::piece between_{};
    /// The network cards of a group, and the machines that it is of.
    int ranks_ = 0, network_cards_ = 1, joined_ = 1;
    bool has_groups_ = false, has_curves_ = false;
};

/// Gives the same shares to all quantities.
class uniform_shares {
public:
    explicit uniform_shares(share_vector shares) : shares_(std::move(shares)) {}
    share_vector const& operator()(share_ref) const { return shares_; }
    /// Factors of equal extent have equal shares.
    [[nodiscard]] bool is_by_extent() const { return true; }

private:
    share_vector shares_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE bytes payload(transfer const& t, int ranks, double largest_from, double largest_to) {
    if (t.how == uneven::grouped) return t.size;
    switch (t.kind) {
    case collective::all_gather: return t.size * (ranks * largest_from);
    case collective::reduce_scatter: return t.size * (ranks * largest_to);
    case collective::all_to_all: return t.size * std::max(largest_from, largest_to);
    case collective::all_reduce:
    case collective::broadcast: break;
    }
    return t.size;
}

HEDDLE_INLINE bucket_load& bucket_load::operator+=(bucket_load const& other) {
    payload += other.payload;
    shards.resize(other.shards.size());
    for (std::size_t k = 0; k < shards.size(); ++k) shards[k] += other.shards[k];
    return *this;
}

HEDDLE_INLINE void momentary_memory::add(instruction::kind what, step_cost const& s) {
    // The group of a computation includes the conversions before it and the reshards after it.
    bool const is_reshard = what == instruction::kind::reshard;
    if (computed_ && !is_reshard) copies_ = 0;
    computed_ = what == instruction::kind::compute || (computed_ && is_reshard);
    copies_ += s.transient;
    most_ = std::max(most_, copies_ + std::max(s.buffer, copies_));
}

HEDDLE_INLINE cost_model::cost_model(cluster const& c, std::vector<device_class> classes, element_type main,
                                     gradient_reduction reduction, std::size_t clocks)
    : classes_(std::move(classes)), clocks_(std::min(clocks, classes_.size())), bucket_(reduction.bucket),
      part_of_update_(reduction.part), network_cards_(network_cards(c)) {
    for (auto const& m : c.machines) joined_ = std::max(joined_, m.joined);
    for (std::size_t k = 0; k < collective_count && c.intra; ++k) {
        auto const hops = heddle::hops_inside(c, static_cast<collective>(k)).pieces;
        hops_inside_[k].assign(hops.begin(), hops.end());
    }
    if (c.inter) {
        auto const link = measured_link(c);
        between_ = {link.latency, seconds_per_byte(1 / link.bandwidth.value)};
    }
    std::map<std::pair<std::size_t, int>, std::size_t> known; // types of device, in groups of a size
    for (auto const& k : classes_) {
        ranks_ += k.count;
        has_groups_ = has_groups_ || k.group_size > 1;
        auto const [at, is_new] = known.try_emplace({k.type, k.group_size}, speeds_.size());
        speed_of_.push_back(at->second);
        if (!is_new) continue;
        auto const& type = c.types[k.type];
        auto const fallback = type.rates.find(main);
        if (fallback == type.rates.end())
            throw input_error("device type '" + type.name + "', rates",
                              std::string("has none for ") + heddle::name(main) +
                                  ", which the program computes in, expected one");
        auto& mine = speeds_.emplace_back();
        for (std::size_t s = 0; s < inside_step_count && k.group_size > 1; ++s)
            mine.inside[s] = time_inside(static_cast<inside_step>(s), k.group_size, detail::of_one_hop);
        mine.bandwidth = type.bandwidth.value;
        mine.memory = type.memory.value;
        for (std::size_t e = 0; e < element_type_count; ++e) {
            auto const own = type.rates.find(static_cast<element_type>(e));
            rate_table const& table = own == type.rates.end() ? fallback->second : own->second;
            for (std::size_t o = 0; o < operator_class_count; ++o) {
                auto const category = static_cast<operator_class>(o);
                class_speed const speed = table.of(category);
                mine.by_class[e][o] = {table.at(category).value, speed.bandwidth.value_or(type.bandwidth).value,
                                       speed.overhead.value_or(type.overhead).value, speed.efficiency, speed.measured};
            }
            constexpr double unlimited = std::numeric_limits<double>::infinity();
            for (auto const& [name, speed] : table.by_operator)
                mine.by_operator[e][name] = {
                    speed.rate ? speed.rate->value : unlimited, speed.bandwidth ? speed.bandwidth->value : unlimited,
                    speed.overhead.value_or(type.overhead).value, speed.efficiency, speed.measured};
            for_each_speed(table, [&](class_speed const& s) { has_curves_ = has_curves_ || s.efficiency; });
        }
    }
    for (std::size_t k = 0; k < collective_count; ++k) models_[k] = model_of(c, static_cast<collective>(k));
    for (std::size_t k = 0; k < collective_count; ++k) of_full_bucket_[k] = models_[k].line_at(bucket_);
    shard_of_full_bucket_ = model(collective::broadcast).line_at(bucket_ / ranks_);
}

HEDDLE_INLINE cost_model::roofline const& cost_model::speed(std::size_t k, kernel_kind const& kernel) const {
    auto const type = static_cast<std::size_t>(kernel.type);
    auto const& known = speeds(k).by_operator[type];
    if (!known.empty() && !kernel.operator_kind.empty())
        if (auto const found = known.find({std::string(kernel.operator_kind), kernel.is_backward});
            found != known.end())
            return found->second;
    return speeds(k).by_class[type][static_cast<std::size_t>(kernel.category)];
}

HEDDLE_INLINE cost_model::roofline cost_model::speed(std::size_t k, kernel_kind const& kernel,
                                                     local_work const& work) const {
    roofline const& all = speed(k, kernel);
    auto factor = measured_factor(all.measured, work.operations, work.whole + work.split);
    if (!factor && work.split > bytes(0))
        factor = measured_factor(all.measured, work.operations / 2, work.whole + work.split / 2);
    return all.times(factor.value_or(1));
}

HEDDLE_INLINE double cost_model::roofline::arithmetic(flops work, double part) const {
    if (!efficiency || work == flops(0)) return work.value * part / rate;
    return efficiency->at_full_rate(work * part).value / rate;
}

HEDDLE_INLINE double cost_model::time(local_work const& work, std::size_t k, kernel_kind const& kernel, bool split,
                                      double s) const {
    double const beside = work.kernels_beside > 0 ? this->beside(work, k, kernel.type, s).at(s) : 0;
    if (!work.launches) return beside;
    local_work const mine = on_member(work, k, s);
    double const moved = mine.whole.value + mine.split.value * s;
    roofline const r = speed(k, kernel, work);
    return std::max(r.arithmetic(mine.operations, split ? s : 1), moved / r.bandwidth) + r.overhead + beside;
}

HEDDLE_INLINE double cost_model::least_time(local_work const& work, std::size_t k, kernel_kind const& kernel,
                                            bool split, double s) const {
    roofline const r = speed(k, kernel, work);
    bool const is_straight = classes_[k].group_size == 1 && (!r.efficiency || !work.launches);
    if (!split || is_straight) return time(work, k, kernel, split, s);
    double const beside = work.kernels_beside > 0 ? this->beside(work, k, kernel.type).at(s) : 0;
    if (!work.launches) return beside;
    double most = 0;
    for (auto const& line : lines_below(work, k, kernel)) most = std::max(most, line.at(s));
    return most + r.overhead + beside;
}

HEDDLE_INLINE std::vector<work_line> cost_model::lines_below(local_work const& work, std::size_t k,
                                                             kernel_kind const& kernel) const {
    local_work const mine = on_member(work, k);
    roofline const r = speed(k, kernel, work);
    bool const is_curved = r.efficiency && mine.operations > flops(0);
    auto lines = is_curved ? r.arithmetic_curve(mine.operations).lines_below()
                           : std::vector<work_line>{{0, mine.operations.value / r.rate}};
    lines.push_back({mine.whole.value / r.bandwidth, mine.split.value / r.bandwidth});
    return lines;
}

HEDDLE_INLINE work_line cost_model::beside(local_work const& work, std::size_t k, element_type e,
                                           std::optional<double> share) const {
    holding const moved = on_member(work.beside, k, share);
    roofline const& r = speed(k, {e, operator_class::elementwise});
    return {moved.whole.value / r.bandwidth + work.kernels_beside * r.overhead, moved.split.value / r.bandwidth};
}

HEDDLE_INLINE double cost_model::part_of_split(samples_inside const& samples, std::size_t k,
                                               std::optional<double> share) const {
    int const n = classes_[k].group_size;
    if (!samples.are_shared) return samples.largest_part(n);
    return share ? samples.largest_part(n, *share) : 1.0 / n;
}

HEDDLE_INLINE local_work cost_model::on_member(local_work work, std::size_t k, std::optional<double> share) const {
    int const n = classes_[k].group_size;
    if (n == 1) return work;
    double const part = part_of_split(work.samples, k, share);
    if (work.is_divided) work.operations = work.operations * part;
    work.whole -= work.whole_inside * (1 - work.samples.largest_part(n));
    work.split -= work.split_inside * (1 - part);
    return work;
}

HEDDLE_INLINE holding cost_model::on_member(holding h, std::size_t k, std::optional<double> share) const {
    int const n = classes_[k].group_size;
    if (n == 1) return h;
    h.whole -= h.whole_inside * (1 - h.samples.largest_part(n));
    h.split -= h.split_inside * (1 - part_of_split(h.samples, k, share));
    return h;
}

HEDDLE_INLINE cost_model::inside_time cost_model::inside_part(inside_transfer const& t, std::size_t k) const {
    auto const [latencies, passes] = time_inside(t.kind, t.members, detail::of_one_hop);
    int const in_machine = classes_[k].group_size / joined_;
    if (t.members * t.lines <= in_machine) return {hops_inside(t.kind), latencies.value, passes.value};
    double const cards = static_cast<double>(network_cards_) / joined_;
    return {std::span(&between_, 1), latencies.value,
            passes.value * std::max(1.0, std::min(t.lines, in_machine) / cards)};
}

HEDDLE_INLINE double cost_model::time(inside_list const& list, std::size_t k, double s) const {
    double sum = 0;
    for (auto const& t : list) sum += inside(t, k)(t.whole.value + t.split.value * s);
    return sum;
}

HEDDLE_INLINE double cost_model::time_of_bucket(transfer const& first, bucket_load const& all) const {
    if (ranks_ == 1) return 0;
    if (!is_one_by_one(first)) return model(first.kind).time(all.payload * crowding(first)).value * part_of_update_;
    double sum = 0;
    for (std::size_t k = 0; k < classes_.size(); ++k)
        sum += classes_[k].count * model(collective::broadcast).time(bytes(all.shards[k]) * crowding(first)).value;
    return sum * part_of_update_;
}

HEDDLE_INLINE double cost_model::latency_of_bucket(transfer const& t) const {
    if (ranks_ == 1) return 0;
    return part_of_update_ * (is_one_by_one(t) ? ranks_ * shard_of_full_bucket_.latency.value
                                               : of_full_bucket_[static_cast<std::size_t>(t.kind)].latency.value);
}

} // namespace heddle

#endif
