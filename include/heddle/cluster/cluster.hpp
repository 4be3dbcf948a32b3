// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Devices, the links between them and what collectives cost.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cluster/saturation.hpp>
#include <heddle/program/tensor.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle {

enum class collective : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast };
inline constexpr std::size_t collective_count = 5;

[[nodiscard]] constexpr char const* name(collective kind) {
    constexpr std::array names{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"};
    return names[static_cast<std::size_t>(kind)];
}

/// How shards of unequal size are moved: all are padded to the largest, or each has an operation of its own. Then a
/// gather is a broadcast from every rank, and a scatter is a reduction to every rank (HAP section 2.5.1).
enum class uneven : std::uint8_t { padded, grouped };

[[nodiscard]] constexpr char const* name(uneven how) { return how == uneven::padded ? "padded" : "grouped"; }

/// Tells whether a collective moves shards in one of two ways.
[[nodiscard]] constexpr bool has_grouped_kind(collective kind) {
    return kind == collective::all_gather || kind == collective::reduce_scatter;
}

/// A kernel that was measured: it takes so many times as long as kernels of its flops and bytes do by their speed.
struct measured_kernel {
    flops work;
    bytes size;
    double factor = 1;
};

/// Returns the factor of a kernel if it is one of these, which are in order of their flops. *Complexity.* Logarithmic,
/// and linear in those with as many flops.
[[nodiscard]] std::optional<double> measured_factor(std::vector<measured_kernel> const& known, flops work, bytes size);

/// What kernels of one operator class reach. If there is no rate, the table's fallback is used; the device's values
/// stand in for the others. Small kernels reach less of the rate: a kernel of `f` flops reaches f / (f + overhead *
/// rate) of it or, before its overhead, what `efficiency` says.
struct class_speed {
    std::optional<flops_per_second> rate{};
    std::optional<bytes_per_second> bandwidth{};
    std::optional<seconds> overhead{};
    /// If absent, kernels reach all of the rate.
    std::optional<saturation> efficiency{};
    /// What is known of single kernels, in order of their flops.
    std::vector<measured_kernel> measured{};
};

/// Operators of one kind, such as "softmax", in the forward or the backward pass.
struct operator_pass {
    std::string kind;
    bool is_backward = false;
    /// Returns the name of the pass.
    [[nodiscard]] char const* pass() const { return is_backward ? "backward" : "forward"; }
    friend auto operator<=>(operator_pass const&, operator_pass const&) = default;
};

/// What operators reach, by their class.
struct operator_speeds {
    std::map<operator_class, class_speed> by_class{};
    /// What is known of single kinds of operators in one pass takes the place of what their class reaches. A rate or a
    /// bandwidth that is absent does not limit them.
    std::map<operator_pass, class_speed> by_operator{};

    [[nodiscard]] class_speed of(operator_class c) const;
};

/// Achievable arithmetic rates; `fallback` is used where a class has no rate of its own.
struct rate_table : operator_speeds {
    flops_per_second fallback;

    rate_table(flops_per_second rate = {}, std::map<operator_class, class_speed> classes = {})
        : operator_speeds{std::move(classes), {}}, fallback(rate) {}
    [[nodiscard]] flops_per_second at(operator_class c) const { return of(c).rate.value_or(fallback); }
};

/// Calls `visit(speed)` for all speeds of a table.
template <class Table, class Visit>
void for_each_speed(Table& table, Visit&& visit) {
    for (auto& [category, speed] : table.by_class) visit(speed);
    for (auto& [name, speed] : table.by_operator) visit(speed);
}

/// A kernel takes overhead + max(flops / rate / efficiency, bytes / bandwidth), which is a roofline.
struct device_type {
    std::string name;
    bytes memory;
    bytes_per_second bandwidth;
    /// The time to start one kernel.
    seconds overhead;
    std::map<element_type, rate_table> rates;
};

/// `count` machines, each with `devices` devices of one type. If they are groups, each machine is planned as one
/// device. Such a group may be several machines `joined`, whose devices and network cards are added up.
struct machine_group {
    std::size_t type = 0;
    int devices = 1;
    int count = 1;
    bool is_group = false;
    /// How many links to other machines each has. Collectives that leave a machine at once share them.
    int network_cards = 1;
    int joined = 1;

    /// The number of devices of a machine that plans tell apart, and how many devices each of them stands for.
    [[nodiscard]] int planned_devices() const { return is_group ? 1 : devices; }
    [[nodiscard]] int group_size() const { return is_group ? devices : 1; }
};

struct network_link {
    bytes_per_second bandwidth;
    seconds latency;
};

/// The time of a collective as the maximum of lines in its bytes, which is convex. Bytes are the payload of the busiest
/// rank, padding included.
struct collective_model {
    struct piece {
        seconds latency;
        seconds_per_byte slope;
    };
    std::vector<piece> pieces;

    [[nodiscard]] seconds time(bytes payload) const;
    /// Returns the line that gives the time of a payload.
    [[nodiscard]] piece line_at(bytes payload) const;
};

/// Measured models of collectives over so many devices of one machine, or over one device of each of so many machines.
struct measured_collectives {
    int devices = 0;
    std::map<collective, collective_model> models{};
};

/// A set of devices that train one program together.
struct cluster {
    std::string name;
    std::vector<device_type> types;
    std::vector<machine_group> machines;
    /// The links between devices of one machine, and between machines.
    std::optional<network_link> intra, inter;
    /// Measured models of collectives over all devices; if devices are groups, over their first devices. Where one is
    /// absent it is derived from the links.
    std::map<collective, collective_model> measured;
    /// Collectives inside machines, and those along a line of machines that runs alone. On other numbers of devices
    /// they are as much slower as rings and trees say.
    measured_collectives measured_inside{}, measured_across{};

    /// Returns the type of every planned device, machine by machine.
    [[nodiscard]] std::vector<std::size_t> devices() const {
        return per_device([](machine_group const& m) { return m.type; });
    }
    /// Returns how many devices each planned device stands for: the size of its group, or 1.
    [[nodiscard]] std::vector<int> group_sizes() const {
        return per_device([](machine_group const& m) { return m.group_size(); });
    }

private:
    template <class Read, class Value = std::invoke_result_t<Read&, machine_group const&>>
    [[nodiscard]] std::vector<Value> per_device(Read&& read) const {
        std::vector<Value> result;
        for (auto const& m : machines)
            result.insert(result.end(),
                          static_cast<std::size_t>(m.planned_devices()) * static_cast<std::size_t>(m.count), read(m));
        return result;
    }
};

/// Tells whether some device is a group of several.
[[nodiscard]] inline bool has_groups(cluster const& c) {
    return algorithm::any_of(c.machines, [](machine_group const& m) { return m.group_size() > 1; });
}

/// Tells whether devices are of several machines.
[[nodiscard]] inline bool has_several_machines(cluster const& c) {
    return c.machines.size() > 1 || (c.machines.size() == 1 && c.machines.front().count > 1);
}

/// Returns the cluster with every machine of several devices as one device group; its collectives are `measured_on` it.
[[nodiscard]] cluster with_grouped_machines(cluster c);

/// Returns the cluster with the devices of every machine in groups of so many, each of which is then a machine; or with
/// neighbouring machines of one kind joined to groups of so many devices. Its collectives are `measured_on` it.
/// *Throws* `input_error` if some machine's devices do not divide into such groups, and its kind of machines does not
/// either; and if groups would be joined of unequally many machines.
[[nodiscard]] cluster with_groups_of(cluster c, int members);

/// Makes the machines of a cluster parts of one machine, if they are several: they have its links between them, and
/// each line of devices across them links of its own, as if a part had a network card for each of its devices.
void join_in_one_machine(cluster& c);

/// Returns how many network cards every machine has at least.
[[nodiscard]] inline int network_cards(cluster const& c) {
    return c.machines.empty() ? 1
                              : algorithm::min_element(c.machines, {}, &machine_group::network_cards)->network_cards;
}

/// This rate is slower than any real one, yet fast enough that times are finite.
inline constexpr double least_rate = 1e-9;

/// *Throws* `input_error` that names the first thing in a cluster that is invalid.
void validate(cluster const& c);

/// Returns the time of a collective over devices of one machine, as it follows from their link.
[[nodiscard]] collective_model::piece line_inside(collective kind, int devices, network_link const& link);

namespace detail {

inline constexpr network_link of_one_hop{bytes_per_second(1), seconds(1)};

/// Returns the model of a collective over all planned devices if it is known by measurements.
[[nodiscard]] std::optional<collective_model> measured_model(cluster const& c, collective kind);

/// Tells whether machines are a line: several of one planned device each.
[[nodiscard]] inline bool is_line(cluster const& c) {
    return has_several_machines(c) &&
           algorithm::all_of(c.machines, [](machine_group const& m) { return m.planned_devices() == 1; });
}

/// Returns the model of a collective over a line of machines, if it was measured along one.
[[nodiscard]] std::optional<collective_model> model_across(cluster const& c, collective kind);

/// Returns what is known of collectives inside machines: where devices are of one, what was measured over all is too.
[[nodiscard]] measured_collectives known_inside(cluster const& c);

} // namespace detail

/// Returns the lines of a hop of a collective inside machines, as measured there or else of the link. Such a collective
/// takes, at each size, the longest of them by as many latencies and passes as `line_inside` has of a link of one
/// second and one byte per second.
/// *Precondition:* `validate(c)` passed, and there is a link inside.
[[nodiscard]] collective_model hops_inside(cluster const& c, collective kind);

/// Returns the time of a collective over all planned devices. It is measured: over them, inside the one machine they are
/// of, or along the line of machines that they are. If not, it is that of a ring over the slowest link it crosses. The
/// ring leaves every machine once; all other hops have the latency of the link inside. An all-to-all has the latency of
/// the ring too (else gathering and slicing might be faster), and the devices of a machine share its network cards.
/// *Precondition:* `validate(c)` passed.
[[nodiscard]] collective_model model_of(cluster const& c, collective kind);

/// Returns the time of a collective that is as much slower than links say as another one was measured to be: the pieces
/// measured, with latencies and slopes in the ratio of two lines that follow from links.
[[nodiscard]] collective_model scaled(collective_model const& measured, collective_model::piece const& line,
                                      collective_model::piece const& line_of_measured);

/// Returns collectives on a part of a cluster's devices, or on groups of them, estimated from those that were measured
/// along a line of machines, where the part is one and all are not, or else on all, or inside the machine that is all:
/// each is as much slower than links say. A part within one machine of several has none, as what was measured says
/// nothing of links inside.
/// *Precondition:* `validate` accepts both.
[[nodiscard]] std::map<collective, collective_model> measured_on(cluster const& part, cluster const& all);

/// Returns the link between machines, as much slower than it says as sums were measured to be along a line of machines,
/// or else over all devices.
/// *Precondition:* `validate(c)` passed.
[[nodiscard]] network_link measured_link(cluster const& c);

/// Returns the cluster without measured collectives, its links so much faster that none takes longer than it was
/// measured, on all devices, inside machines, along lines of them or, as `measured_on` has it, on a part.
[[nodiscard]] cluster with_links_within_measured(cluster c);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

namespace detail {

/// Returns the time of a ring or tree of so many ranks: `around` is the latency of a ring's hops together, `latency`
/// that of a tree's, and an all-to-all's bytes share a link as `shared_per_byte` has it.
HEDDLE_INLINE collective_model::piece line_over(collective kind, double ranks, double around, double latency,
                                                double per_byte, double shared_per_byte) {
    double const fraction = (ranks - 1) / ranks;
    switch (kind) {
    case collective::all_reduce: return {seconds(2 * around), seconds_per_byte(2 * fraction * per_byte)};
    case collective::all_gather:
    case collective::reduce_scatter: return {seconds(around), seconds_per_byte(fraction * per_byte)};
    case collective::all_to_all: return {seconds(around), seconds_per_byte(fraction * shared_per_byte)};
    case collective::broadcast: return {seconds(std::ceil(std::log2(ranks)) * latency), seconds_per_byte(per_byte)};
    }
    return {};
}

/// Returns the time of a collective as it follows from links.
HEDDLE_INLINE collective_model::piece line_of_links(cluster const& c, collective kind) {
    double ranks = 0, most_inside = 1, most_sharing = 1;
    int machine_count = 0;
    for (auto const& m : c.machines) {
        ranks += static_cast<double>(m.planned_devices()) * m.count;
        most_inside = std::max(most_inside, static_cast<double>(m.planned_devices()));
        most_sharing = std::max(most_sharing, static_cast<double>(m.planned_devices()) / m.network_cards);
        machine_count += m.count;
    }
    if (ranks <= 1) return {};
    double latency = 0, per_byte = 0, shared_per_byte = 0;
    if (most_inside > 1) {
        latency = c.intra->latency.value;
        per_byte = shared_per_byte = 1 / c.intra->bandwidth.value;
    }
    if (machine_count > 1) {
        latency = std::max(latency, c.inter->latency.value);
        per_byte = std::max(per_byte, 1 / c.inter->bandwidth.value);
        shared_per_byte =
            std::max(shared_per_byte, most_sharing * (ranks - most_inside) / (ranks - 1) / c.inter->bandwidth.value);
    }
    double const inside = most_inside > 1 ? c.intra->latency.value : latency,
                 across = machine_count > 1 ? c.inter->latency.value : inside;
    double const leaving = machine_count > 1 ? machine_count : 0;
    double const around = leaving * across + (ranks - leaving) * inside - std::min(inside, across); // all links but one
    return line_over(kind, ranks, around, latency, per_byte, shared_per_byte);
}

HEDDLE_INLINE std::optional<collective_model> measured_model(cluster const& c, collective kind) {
    if (auto const found = c.measured.find(kind); found != c.measured.end()) return found->second;
    if (has_several_machines(c)) return model_across(c, kind);
    if (c.machines.empty() || !c.measured_inside.models.contains(kind)) return std::nullopt;
    return scaled(hops_inside(c, kind), line_inside(kind, c.machines.front().planned_devices(), of_one_hop),
                  {seconds(1), seconds_per_byte(1)});
}

HEDDLE_INLINE std::optional<collective_model> model_across(cluster const& c, collective kind) {
    auto const& [machines, models] = c.measured_across;
    auto const found = models.find(kind);
    if (!is_line(c) || found == models.end()) return std::nullopt;
    return scaled(found->second, line_of_links(c, kind), line_inside(kind, machines, *c.inter));
}

HEDDLE_INLINE measured_collectives known_inside(cluster const& c) {
    auto result = c.measured_inside;
    int const devices = c.machines.empty() ? 0 : c.machines.front().planned_devices();
    if (has_several_machines(c) || devices < 2) return result;
    if (result.models.empty()) result.devices = devices;
    for (auto const& [kind, model] : c.measured)
        result.models.try_emplace(
            kind, scaled(model, line_inside(kind, result.devices, of_one_hop), line_inside(kind, devices, of_one_hop)));
    return result;
}

} // namespace detail

HEDDLE_INLINE std::optional<double> measured_factor(std::vector<measured_kernel> const& known, flops work, bytes size) {
    auto const alike = [](double a, double b) { return std::abs(a - b) <= 1e-9 * b; };
    auto at = algorithm::lower_bound(known, work * (1 - 1e-9), {}, &measured_kernel::work);
    for (; at != known.end() && alike(at->work.value, work.value); ++at)
        if (alike(at->size.value, size.value)) return at->factor;
    return std::nullopt;
}

HEDDLE_INLINE class_speed operator_speeds::of(operator_class c) const {
    auto const found = by_class.find(c);
    return found == by_class.end() ? class_speed{} : found->second;
}

HEDDLE_INLINE seconds collective_model::time(bytes payload) const {
    seconds most{0};
    for (auto const& p : pieces) most = std::max(most, p.latency + p.slope * payload);
    return most;
}

HEDDLE_INLINE collective_model::piece collective_model::line_at(bytes payload) const {
    auto const time_on = [payload](piece const& p) { return p.latency + p.slope * payload; };
    return pieces.empty() ? piece{} : *algorithm::max_element(pieces, {}, time_on);
}

HEDDLE_INLINE cluster with_grouped_machines(cluster c) {
    auto const all = c;
    c.measured_inside = detail::known_inside(all);
    for (auto& m : c.machines) m.is_group = m.devices > 1;
    c.measured = measured_on(c, all);
    return c;
}

HEDDLE_INLINE cluster with_groups_of(cluster c, int members) {
    auto const all = c;
    c.measured_inside = detail::known_inside(all);
    for (auto& m : c.machines) { // as they are before they are joined
        m.count *= m.joined;
        m.devices /= m.joined;
        m.network_cards /= m.joined;
        m.joined = 1;
    }
    bool const is_on_one_machine = !has_several_machines(c);
    for (auto& m : c.machines) {
        int const joined = members > m.devices ? members / m.devices : 1;
        if (joined > 1 && members % m.devices == 0 && m.count % joined == 0) {
            m.count /= joined;
            m.devices = members;
            m.network_cards *= joined;
            m.joined = joined;
            m.is_group = true;
            continue;
        }
        if (members < 1 || m.devices % members != 0)
            throw input_error("cluster '" + c.name + "'", "has a machine of " + std::to_string(m.devices) +
                                                              " devices, expected groups of " +
                                                              std::to_string(members) + " to divide it");
        if (members < m.devices) c.measured_across = {}; // groups of one machine share its network cards
        m.count *= m.devices / members;
        m.devices = members;
        m.is_group = members > 1;
    }
    for (auto const& m : c.machines)
        if (m.joined != c.machines.front().joined)
            throw input_error("cluster '" + c.name + "'", "has machines of which unequally many make a group of " +
                                                              std::to_string(members) + ", expected equally many");
    if (is_on_one_machine) join_in_one_machine(c);
    c.measured = measured_on(c, all);
    return c;
}

HEDDLE_INLINE void join_in_one_machine(cluster& c) {
    if (!has_several_machines(c)) return;
    c.inter = c.intra;
    c.measured_across = {};
    for (auto& m : c.machines) m.network_cards = std::max(m.network_cards, m.devices);
}

HEDDLE_INLINE void validate(cluster const& c) {
    auto const rate = [](double value) { return std::isfinite(value) && value >= least_rate; };
    auto const positive = [](double value) { return std::isfinite(value) && value > 0; };
    auto const non_negative = [](double value) { return std::isfinite(value) && value >= 0; };
    if (c.machines.empty()) throw input_error("machines", "there is none, expected at least one");
    for (auto const& type : c.types) {
        std::string const place = "device type '" + type.name + "'";
        if (!positive(type.memory.value)) throw input_error(place + ", memory", "expected a positive number of bytes");
        if (!rate(type.bandwidth.value))
            throw input_error(place + ", bandwidth", "expected bytes per second, at least 1e-9");
        if (!non_negative(type.overhead.value))
            throw input_error(place + ", overhead", "expected seconds, not negative");
        if (type.rates.empty())
            throw input_error(place + ", rates", "expected flops per second for at least one element type");
        for (auto const& [element, table] : type.rates) {
            bool good = rate(table.fallback.value);
            for_each_speed(table, [&](class_speed const& speed) {
                good = good && rate(speed.rate.value_or(table.fallback).value);
                if (!rate(speed.bandwidth.value_or(type.bandwidth).value))
                    throw input_error(place + ", rates", "expected bytes per second, at least 1e-9");
                if (!non_negative(speed.overhead.value_or(type.overhead).value))
                    throw input_error(place + ", rates", "expected an overhead that is not negative");
                if (auto const& e = speed.efficiency; e && !(positive(e->scale.value) && e->least >= 0 && e->least < 1))
                    throw input_error(
                        place + ", rates",
                        "expected an efficiency of a positive scale, from a part of at least 0 and less than 1");
                for (auto const& m : speed.measured)
                    if (!non_negative(m.work.value) || !non_negative(m.size.value) || !positive(m.factor))
                        throw input_error(place + ", rates", "expected measured kernels of positive factors");
                if (!std::is_sorted(speed.measured.begin(), speed.measured.end(),
                                    [](auto const& a, auto const& b) { return a.work < b.work; }))
                    throw input_error(place + ", rates", "expected measured kernels in order of their flops");
            });
            if (!good) throw input_error(place + ", rates", "expected flops per second, at least 1e-9");
        }
    }
    double total = 0;
    bool several_inside = false;
    int machine_count = 0;
    for (auto const& m : c.machines) {
        if (m.type >= c.types.size()) throw input_error("machines", "names an unknown device type");
        if (m.devices < 1 || m.count < 1 || m.network_cards < 1)
            throw input_error("machines", "devices, count and network_cards must be at least 1");
        if (m.joined < 1 || m.devices % m.joined != 0)
            throw input_error("machines", "are joined of others with unequally many devices");
        total += static_cast<double>(m.devices) * m.count;
        several_inside |= m.devices > 1;
        machine_count += m.count * m.joined;
        if (total > 65536) throw input_error("machines", "more than 65536 devices");
    }
    auto const check_link = [&](std::optional<network_link> const& l, char const* place) {
        if (!l) throw input_error(std::string("links, ") + place, "missing, but the machines need it");
        if (!rate(l->bandwidth.value))
            throw input_error(std::string("links, ") + place + ", bandwidth",
                              "expected bytes per second, at least 1e-9");
        if (!non_negative(l->latency.value))
            throw input_error(std::string("links, ") + place + ", latency", "expected seconds, not negative");
    };
    if (several_inside) check_link(c.intra, "intra");
    if (machine_count > 1) check_link(c.inter, "inter");
    auto const check_models = [&](std::map<collective, collective_model> const& models, std::string const& place) {
        for (auto const& [kind, model] : models) {
            auto const here = place + ", " + heddle::name(kind);
            if (model.pieces.empty()) throw input_error(here, "expected at least one piece");
            for (auto const& p : model.pieces)
                if (!non_negative(p.latency.value) || !non_negative(p.slope.value))
                    throw input_error(here, "expected numbers that are not negative");
        }
    };
    check_models(c.measured, "collectives");
    auto const check_line = [&](measured_collectives const& line, std::string const& place, char const* count) {
        check_models(line.models, place);
        if (!line.models.empty() && line.devices < 2) throw input_error(place + ", " + count, "expected at least 2");
    };
    check_line(c.measured_inside, "collectives_inside", "devices");
    check_line(c.measured_across, "collectives_across", "machines");
    if (!c.measured_across.models.empty()) check_link(c.inter, "collectives_across");
}

HEDDLE_INLINE collective_model::piece line_inside(collective kind, int devices, network_link const& link) {
    if (devices <= 1) return {};
    double const n = devices, latency = link.latency.value, per_byte = 1 / link.bandwidth.value;
    return detail::line_over(kind, n, (n - 1) * latency, latency, per_byte, per_byte);
}

HEDDLE_INLINE collective_model hops_inside(cluster const& c, collective kind) {
    auto const& [devices, models] = c.measured_inside;
    if (auto const found = models.find(kind); found != models.end())
        return scaled(found->second, {seconds(1), seconds_per_byte(1)}, line_inside(kind, devices, detail::of_one_hop));
    return {{{c.intra->latency, seconds_per_byte(1 / c.intra->bandwidth.value)}}};
}

HEDDLE_INLINE collective_model model_of(cluster const& c, collective kind) {
    if (auto measured = detail::measured_model(c, kind)) return *std::move(measured);
    return {{detail::line_of_links(c, kind)}};
}

HEDDLE_INLINE collective_model scaled(collective_model const& measured, collective_model::piece const& line,
                                      collective_model::piece const& line_of_measured) {
    auto const ratio = [](double mine, double whole) { return whole > 0 ? mine / whole : 1; };
    double const latencies = ratio(line.latency.value, line_of_measured.latency.value),
                 slopes = ratio(line.slope.value, line_of_measured.slope.value);
    auto result = measured;
    for (auto& p : result.pieces) p.latency *= latencies, p.slope *= slopes;
    return result;
}

HEDDLE_INLINE std::map<collective, collective_model> measured_on(cluster const& part, cluster const& all) {
    std::map<collective, collective_model> result;
    if (all.measured.empty() && all.measured_inside.models.empty() && all.measured_across.models.empty()) return result;
    if (!has_several_machines(all) && has_groups(all)) { // one machine as one device says nothing of parts
        auto apart = all;
        apart.machines.front().is_group = false;
        return measured_on(part, apart);
    }
    if ((has_several_machines(all) && !has_several_machines(part)) || part.devices().size() < 2) return result;
    for (std::size_t k = 0; k < collective_count; ++k) {
        auto const kind = static_cast<collective>(k);
        auto model = detail::is_line(all) ? std::nullopt : detail::model_across(part, kind);
        if (model) result[kind] = *std::move(model);
        else if ((model = detail::measured_model(all, kind)))
            result[kind] = scaled(*model, detail::line_of_links(part, kind), detail::line_of_links(all, kind));
    }
    return result;
}

HEDDLE_INLINE network_link measured_link(cluster const& c) {
    network_link link = c.inter.value_or(network_link{});
    auto const& [machines, across] = c.measured_across;
    bool const is_across = across.contains(collective::all_reduce);
    auto const& models = is_across ? across : c.measured;
    auto const measured = models.find(collective::all_reduce);
    if (measured == models.end() || !c.inter) return link;
    auto const line = is_across ? line_inside(collective::all_reduce, machines, link)
                                : detail::line_of_links(c, collective::all_reduce);
    auto const& steepest = *algorithm::max_element(measured->second.pieces, {}, &collective_model::piece::slope);
    if (line.latency.value > 0) link.latency *= steepest.latency / line.latency;
    if (line.slope.value > 0 && steepest.slope.value > 0) link.bandwidth *= line.slope / steepest.slope;
    return link;
}

HEDDLE_INLINE cluster with_links_within_measured(cluster c) {
    struct faster {
        double latencies = 1, bandwidths = 1;
        void add(collective_model const& model, collective_model::piece const& links) {
            auto const& measured = *algorithm::max_element(model.pieces, {}, &collective_model::piece::slope);
            if (links.latency.value > 0) latencies = std::min(latencies, measured.latency / links.latency);
            if (links.slope.value > 0)
                bandwidths = std::max(bandwidths, std::min(1e12, links.slope.value / measured.slope.value));
        }
        void apply(std::optional<network_link>& link) const {
            if (link) link->latency *= std::max(latencies, 0.0), link->bandwidth *= bandwidths;
        }
    } all;
    for (auto const& [kind, model] : c.measured) all.add(model, detail::line_of_links(c, kind));
    auto const apply = [&](std::optional<network_link>& link, measured_collectives& along) {
        auto both = all;
        for (auto const& [kind, model] : along.models)
            if (link) both.add(model, line_inside(kind, along.devices, *link));
        both.apply(link);
        along = {};
    };
    apply(c.intra, c.measured_inside);
    apply(c.inter, c.measured_across);
    c.measured.clear();
    return c;
}

} // namespace heddle

#endif
