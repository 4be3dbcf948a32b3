// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans from JSON.
#pragma once

#include <heddle/json/detail/plan_names.hpp>
#include <heddle/json/detail/provenance.hpp>
#include <heddle/json/document.hpp>
#include <heddle/plan/plan.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle::json::detail {

class plan_reader {
public:
    explicit plan_reader(document const& file) : plan_reader(file.root()) {}
    explicit plan_reader(element root) : root_(std::move(root)) {}

    plan read() {
        if (auto const stages = root_.find("pipeline")) stages->fail("is there, but this is not a plan of one stage");
        if (auto const version = root_.find("version")) {
            int const needed = root_.find("mesh") ? 2 : 1;
            auto const given = version->integer(1, 5);
            if (given == 4) version->expected("another version, since no stages are in rounds");
            has_regions_ = given >= 3;
            has_cuts_inside_ = given >= 5;
            if (!has_regions_ && given != needed)
                version->expected(std::to_string(needed) +
                                  (needed == 2 ? ", since there is a mesh" : " without a mesh"));
        }
        read_outcome();
        read_provenance();
        read_devices();
        read_tensors();
        read_cuts();
        read_steps();
        read_stages();
        check_outcome();
        return std::move(plan_);
    }

private:
    static constexpr std::int64_t most = std::int64_t{1} << 53;
    static constexpr std::int64_t most_factors = 32'000;

    static double optional_number(element const& from, char const* field) {
        auto const found = from.find(field);
        return found ? found->non_negative() : 0;
    }
    static std::string optional_text(element const& from, char const* field) {
        auto const found = from.find(field);
        return found ? found->text() : std::string();
    }
    static std::optional<double> number_or_null(element const& e) {
        return e.value().is_null() ? std::nullopt : std::optional(e.non_negative());
    }
    static strategy_costs read_costs(element const& e) {
        strategy_costs costs;
        for (auto const& [name, cost] : e.fields()) costs[name] = number_or_null(cost);
        return costs;
    }
    /// Returns an array, which must have exactly `count` items.
    static element exactly(element e, std::size_t count, std::string const& what) {
        if (e.size() != count) e.expected(std::to_string(count) + ", " + what);
        return e;
    }
    static bool near(double a, double b) {
        return std::isfinite(b) && std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
    }

    void read_outcome() {
        plan_.status = root_.at("status").choice(statuses);
        auto const limit = root_.find("which_limit");
        if (plan_.status == search::status::limit) plan_.which_limit = root_.at("which_limit").choice(limits);
        else if (limit) limit->fail("is there, but the status is not 'limit'");
        plan_.reason =
            plan_.status == search::status::infeasible ? root_.at("reason").text() : optional_text(root_, "reason");
        plan_.lower_bound = root_.at("lower_bound").non_negative();
        plan_.space = optional_text(root_, "space");
        if (auto const global = root_.find("global_lower_bound")) {
            plan_.global_lower_bound = global->non_negative();
            if (*plan_.global_lower_bound > plan_.lower_bound) global->expected("at most lower_bound");
        }
        auto const count = [&](char const* field, bool needed) {
            auto const found = needed ? std::optional(root_.at(field)) : root_.find(field);
            return static_cast<std::size_t>(found ? found->integer(0, most) : 0);
        };
        plan_.statistics = {count("expanded", true),          count("generated", true), count("dominated", false),
                            count("bounded", false),          count("kept", false),     count("compared", false),
                            optional_number(root_, "seconds")};
        root_.at("warnings").for_each([&](element const& e) { plan_.warnings.push_back(e.text()); });
        plan_.baselines = read_costs(root_.at("baselines"));
        if (auto const others = root_.find("other_baselines")) plan_.other_baselines = read_costs(*others);
        element const time = root_.at("time");
        plan_.time = {time.at("compute").number(),
                      time.at("forward_communication").number(),
                      time.at("backward_communication").number(),
                      time.at("gradient_communication").number(),
                      time.at("update").number(),
                      optional_number(time, "parameter_communication"),
                      optional_number(time, "compute_inside"),
                      optional_number(time, "update_inside")};
    }

    void read_provenance() {
        element const from = root_.at("provenance");
        plan_.provenance = provenance_from_json(from);
        auto const overlaps = from.find("overlaps_gradients"), copies = from.find("copies_gradients");
        plan_.provenance.training.overlaps_gradients = overlaps && overlaps->boolean();
        plan_.provenance.training.copies_gradients = copies && copies->boolean();
        if (auto const own = from.find("accumulator")) plan_.provenance.training.accumulator.name = own->text();
        plan_.provenance.training.bucket = bytes(optional_number(from, "bucket_bytes"));
        auto const count = [&](char const* field) {
            auto const found = from.find(field);
            return found ? static_cast<int>(found->integer(1, std::int64_t{1} << 30)) : 1;
        };
        plan_.provenance.training.accumulated = count("accumulated");
        plan_.provenance.training.in_flight = count("in_flight");
        if (auto const recomputes = from.find("recomputes")) {
            bool const is_of_old = recomputes->value().is_boolean(); // all of a stage is one region
            plan_.provenance.training.recomputes = !is_of_old              ? recomputes->choice(recomputations)
                                                   : recomputes->boolean() ? recomputation::full
                                                                           : recomputation::none;
            is_one_region_ = is_of_old && recomputes->boolean();
        }
        if (auto const schedule = root_.find("schedule")) {
            if (auto const kind = schedule->at("kind"); kind.text() != "duplex") kind.expected("'duplex'");
            plan_.provenance.training.micro_batches = static_cast<int>(schedule->at("micro_batches").integer(2, 65536));
            plan_.provenance.training.turn = seconds(optional_number(*schedule, "turn"));
        }
    }
    /// Reads numbers of steps, ascending.
    void read_stages() {
        auto const schedule = root_.find("schedule");
        if (!schedule) return;
        if (plan_.has_groups()) schedule->fail("is there, but device groups do not interleave micro-batches");
        schedule->at("stages").for_each([&](element const& e) {
            auto const least = plan_.stages.empty() ? 0 : static_cast<std::int64_t>(plan_.stages.back()) + 1;
            plan_.stages.push_back(
                static_cast<std::size_t>(e.integer(least, static_cast<std::int64_t>(plan_.steps.size()) - 1)));
        });
    }

    /// Reads one row for one segment, or a list of rows for several; each has a ratio for each place of an axis.
    ratio_table read_ratios(element const& e, std::size_t places) const {
        bool const is_one = !(e.size() > 0 && e.item(0).value().is_array());
        ratio_table result;
        if (is_one) result.push_back(read_row(e, places));
        else e.for_each([&](element const& row) { result.push_back(read_row(row, places)); });
        return result;
    }
    /// Reads ratios of every segment.
    ratio_table read_all_ratios(element const& e, std::size_t places) const {
        auto result = read_ratios(e, places);
        if (result.size() != segment_count_) e.expected(std::to_string(segment_count_) + ", one list per segment");
        return result;
    }
    /// Reads one ratio per place, if their number is known; they sum to one.
    static std::vector<double> read_row(element const& e, std::size_t places) {
        if (places > 0) exactly(e, places, "one per device");
        std::vector<double> result;
        double sum = 0;
        e.for_each([&](element const& entry) {
            result.push_back(entry.non_negative());
            sum += result.back();
        });
        if (!(std::abs(sum - 1) <= 1e-6)) e.fail("sums to " + nlohmann::json(sum).dump() + ", expected 1");
        return result;
    }

    void read_devices() {
        element const devices = root_.at("devices");
        std::size_t const count = devices.size();
        if (count > 65536) devices.expected("at most 65536 devices");
        element const memory_limits = exactly(root_.at("memory_limit_bytes"), count, "one per device");
        for (std::size_t d = 0; d < count; ++d)
            plan_.devices.push_back({devices.item(d).text(), bytes(memory_limits.item(d).positive())});
        if (auto const sizes = root_.find("group_sizes")) {
            exactly(*sizes, count, "one per device");
            for (std::size_t d = 0; d < count; ++d)
                plan_.devices[d].group_size = static_cast<int>(sizes->item(d).integer(1, 65536));
        }
        read_mesh();
        read_segments();
        bool const found = root_.at("steps").size() > 0;
        if (found && count == 0) devices.expected("at least one");
        if (element const ratios = root_.at("ratios"); found || ratios.size() > 0)
            plan_.ratios = read_all_ratios(ratios, count);
        if (plan_.is_on_mesh()) {
            element const inner = root_.at("inner_ratios");
            if (found || inner.size() > 0) exactly(inner, plan_.inner_sizes.size(), "one per inner axis");
            for (std::size_t a = 0; a < inner.size(); ++a)
                plan_.inner_ratios.push_back(read_all_ratios(inner.item(a), plan_.inner_sizes[a]));
        }
        element const memory = root_.at("memory");
        if (found || memory.size() > 0) exactly(memory, count, "one per device");
        memory.for_each([&](element const& e) {
            plan_.memory.push_back({e.at("parameters").number(), e.at("gradients").number(), e.at("optimizer").number(),
                                    e.at("inputs").number(), e.at("activations").number(),
                                    e.at("communication").number()});
        });
        element const totals = exactly(root_.at("memory_bytes"), plan_.memory.size(), "as many as in memory");
        for (std::size_t d = 0; d < plan_.memory.size(); ++d)
            if (double const sum = plan_.memory[d].total(); !near(totals.item(d).number(), sum))
                totals.item(d).expected("the sum of memory[" + std::to_string(d) + "], " + nlohmann::json(sum).dump());
        root_.at("trajectory").for_each([&](element const& e) {
            element const ratios = e.at("ratios");
            auto& point = plan_.trajectory.emplace_back(
                trajectory_point{e.at("origin").text(), {}, number_or_null(e.at("cost"))});
            if (ratios.size() > 0) point.ratios = read_ratios(ratios, count);
        });
    }

    /// Reads the sizes of a mesh's axes; the places of the outermost are the devices.
    void read_mesh() {
        auto const sizes = root_.find("mesh");
        if (!sizes) return;
        std::size_t const axes = sizes->size();
        if (axes < 2 || axes > most_axes)
            sizes->expected("the sizes of 2 to " + std::to_string(most_axes) + " axes, outermost first");
        if (root_.find("group_sizes")) root_.at("group_sizes").fail("is there, but a plan on a mesh has no groups");
        auto const devices = static_cast<std::int64_t>(plan_.devices.size());
        if (sizes->item(0).integer(0, 65536) != devices)
            sizes->item(0).expected("the number of devices, " + std::to_string(devices));
        std::int64_t all = 1;
        for (std::size_t a = 1; a < axes; ++a) {
            plan_.inner_sizes.push_back(static_cast<std::size_t>(sizes->item(a).integer(1, 65536 / all)));
            all *= static_cast<std::int64_t>(plan_.inner_sizes.back());
        }
        for (auto& d : plan_.devices) d.group_size = static_cast<int>(all);
    }

    void read_segments() {
        auto const segments = root_.find("segments");
        if (!segments) return;
        exactly(*segments, root_.at("operators").size(), "one per operator").for_each([&](element const& e) {
            plan_.segments.push_back(static_cast<segment_number>(e.integer(0, 65534)));
            segment_count_ = std::max<std::size_t>(segment_count_, plan_.segments.back() + std::size_t{1});
        });
    }

    void read_tensors() {
        root_.at("tensors").for_each([&](element const& e) {
            auto& t = plan_.tensors.emplace_back();
            t.name = e.at("name").text();
            t.type = e.at("dtype").choice(element_types);
            t.role = e.at("role").choice(roles);
            std::int64_t elements = 1;
            e.at("shape").for_each([&](element const& dimension) {
                t.shape.push_back(dimension.integer(1, most));
                if (t.shape.back() > most / elements) e.at("shape").expected("at most 2^53 elements");
                elements *= t.shape.back();
            });
            if (auto const trainable = e.find("trainable")) t.trainable = trainable->boolean();
            bool const may_be = t.role == tensor_role::parameter || t.role == tensor_role::input;
            if (t.trainable && !(may_be && is_floating(t.type)))
                e.at("trainable").fail("is true, expected so of floating-point parameters and inputs alone");
            if (auto const whole_of = e.find("whole_of")) {
                t.whole_of = whole_of->text();
                if (t.role != tensor_role::input || t.trainable)
                    whole_of->fail("is there, but the tensor is no input, or trainable");
            }
            element const factors = e.at("factors");
            if (factors.size() > static_cast<std::size_t>(most_factors))
                factors.expected("at most " + std::to_string(most_factors));
            factors.for_each([&](element const& f) {
                if (f.size() != 4) exactly(f, 3, "dimension, extent and stride");
                if (t.shape.empty()) f.fail("is there, but the tensor has no dimensions");
                auto const rank = static_cast<std::int64_t>(t.shape.size());
                auto const dimension =
                    static_cast<std::uint16_t>(f.item(0).integer(0, std::min<std::int64_t>(rank, 65536) - 1));
                extent const whole = t.shape[dimension], count = f.item(1).integer(1, whole);
                std::vector<extent> widths;
                if (f.item(2).value().is_array())
                    f.item(2).for_each([&](element const& w) { widths.push_back(w.integer(1, whole / count)); });
                extent const stride = widths.empty() ? f.item(2).integer(1, whole / count)
                                                     : std::accumulate(widths.begin(), widths.end(), extent{0});
                if (widths.empty() ? whole % (count * stride) != 0 : whole != count * stride || widths.size() < 2)
                    f.fail("does not divide the dimension's extent, " + std::to_string(whole));
                segment_number const segment = f.size() == 4 ? static_cast<segment_number>(f.item(3).integer(
                                                                   0, static_cast<std::int64_t>(segment_count_) - 1))
                                                             : segment_number{0};
                t.factors.push_back({dimension, count, stride, segment, std::move(widths)});
            });
            if (auto const inside = e.find("inside")) {
                if (!plan_.has_groups()) inside->fail("is there, but no device is a group");
                if (t.role == tensor_role::parameter)
                    inside->fail("is there, but every device of a group has a parameter whole");
                if (t.factors.empty()) inside->fail("is there, but the tensor has no factors");
                t.inside =
                    static_cast<factor_number>(inside->integer(0, static_cast<std::int64_t>(t.factors.size()) - 1));
            }
            if (is_one_region_ && t.role == tensor_role::value) t.region = 0;
            if (auto const region = e.find("region")) {
                t.region = read_region(*region);
                if (t.role != tensor_role::value) region->fail("is there, but the tensor is a source");
            }
            widest_ = std::max(widest_, t.factors.size());
        });
        root_.at("operators").for_each([&](element const& e) { plan_.operators.push_back(e.text()); });
    }

    region_number read_region(element const& e) const {
        if (!has_regions_) e.fail("is there, but the file is not of version 3");
        if (plan_.provenance.training.recomputes == recomputation::none) e.fail("is there, but nothing is recomputed");
        return static_cast<region_number>(e.integer(0, std::numeric_limits<region_number>::max()));
    }

    tensor_id read_tensor(element const& e) const {
        if (plan_.tensors.empty()) e.fail("names a tensor, but there is none");
        return static_cast<tensor_id>(e.integer(0, static_cast<std::int64_t>(plan_.tensors.size()) - 1));
    }

    /// A pair of tensor and factor.
    cut_factor read_factor(element const& e) const {
        exactly(e, 2, "a tensor and one of its factors");
        return read_first_two(e);
    }
    [[nodiscard]] cut_factor read_first_two(element const& e) const {
        tensor_id const t = read_tensor(e.item(0));
        auto const count = static_cast<std::int64_t>(plan_.tensors[t].factors.size());
        if (count == 0) e.fail("names a factor of a tensor that has none");
        return {t, static_cast<factor_number>(e.item(1).integer(0, count - 1))};
    }

    void read_cuts() {
        root_.at("cuts").for_each([&](element const& e) {
            auto& cut = plan_.cuts.emplace_back();
            cut.atoms = e.at("atoms").integer(1, most);
            cut.counts = read_counts(e.at("counts"), plan_.devices.size(), cut.atoms, "atoms");
            if (plan_.is_on_mesh()) read_inner_counts(e.at("inside"), cut);
            e.at("members").for_each([&](element const& member) {
                cut_factor const m = read_factor(member);
                factor const& place = plan_.tensors[m.tensor].factors[static_cast<std::size_t>(m.factor)];
                if (place.extent % cut.atoms != 0)
                    member.fail("has extent " + std::to_string(place.extent) + ", expected a multiple of atoms, " +
                                std::to_string(cut.atoms));
                if (cut.members.empty()) cut.segment = place.segment;
                else if (place.segment != cut.segment)
                    member.fail("is of segment " + std::to_string(place.segment) + ", expected " +
                                std::to_string(cut.segment) + ", the first member's");
                if (!cut_.insert(m).second) member.fail("is cut a second time");
                cut.members.push_back(m);
            });
        });
    }

    /// Reads how many of some atoms each place of an axis has.
    static std::vector<extent> read_counts(element const& e, std::size_t places, extent atoms,
                                           std::string const& what) {
        std::vector<extent> counts;
        extent sum = 0;
        exactly(e, places, "one per device").for_each([&](element const& count) {
            counts.push_back(count.integer(0, atoms));
            sum += counts.back();
            if (sum > atoms) e.fail("sum to more than " + what + ", " + std::to_string(atoms));
        });
        if (sum != atoms) e.fail("sum to " + std::to_string(sum) + ", expected " + what + ", " + std::to_string(atoms));
        return counts;
    }
    /// Reads, for each inner axis, how it divides every number of atoms that the axes outside may leave.
    void read_inner_counts(element const& e, atom_class& cut) const {
        exactly(e, plan_.inner_sizes.size(), "one per inner axis");
        std::set<extent> left(cut.counts.begin(), cut.counts.end());
        left.insert(cut.atoms);
        for (std::size_t a = 0; a < plan_.inner_sizes.size(); ++a) {
            element const of_axis = e.item(a);
            auto& parts = cut.inside.emplace_back();
            of_axis.for_each([&](element const& pair) {
                exactly(pair, 2, "a number of atoms and how many each place has");
                extent const atoms = pair.item(0).integer(0, cut.atoms);
                if (!parts.emplace(atoms, read_counts(pair.item(1), plan_.inner_sizes[a], atoms, "those")).second)
                    pair.fail("says a second time how " + std::to_string(atoms) + " atoms are divided");
            });
            for (extent atoms : left)
                if (!parts.contains(atoms))
                    of_axis.fail("does not say how " + std::to_string(atoms) +
                                 " atoms are divided, which axes outside may leave");
            for (auto const& [atoms, counts] : parts) left.insert(counts.begin(), counts.end());
        }
    }

    void check_cut(element const& e, cut_factor f) const {
        if (!cut_.contains(f))
            e.fail("is split along factor " + std::to_string(f.factor) + " of tensor " + std::to_string(f.tensor) +
                   ", which is in no cut");
    }
    share_ref read_share(element const& e) const {
        bool const is_cut_inside = has_cuts_inside_ && plan_.is_on_mesh() && e.size() == 3;
        cut_factor const f = is_cut_inside ? read_first_two(e) : read_factor(e);
        check_cut(e, f);
        if (!is_cut_inside) return {f.tensor, f.factor};
        return {f.tensor, f.factor, e.item(2).integer(2, static_cast<extent>(plan_.mesh().devices_inside(0)))};
    }

    static tensor_form parse_form(element const& e, std::size_t factors) {
        std::string const text = e.text();
        for (tensor_form const f : {tensor_form::replicated(), tensor_form::partial(), tensor_form::mirrored()})
            if (text == to_string(f)) return f;
        factor_number number = no_factor;
        if (text.starts_with("shard(")) std::from_chars(text.data() + 6, text.data() + text.size(), number);
        if (number < 0 || number > most_factors || text != to_string(tensor_form::shard(number)))
            e.expected("replicated, partial, mirrored or shard(factor)");
        if (static_cast<std::size_t>(number) >= factors) e.expected("a factor below " + std::to_string(factors));
        return tensor_form::shard(number);
    }
    [[nodiscard]] tensor_form read_form(element const& e, tensor_id t) const {
        tensor_form const f = parse_form(e, plan_.tensors[t].factors.size());
        if (f.is_shard()) check_cut(e, {t, f.factor()});
        if (f == tensor_form::partial() && !is_floating(plan_.tensors[t].type))
            e.expected("another form, since the tensor is not floating-point");
        return f;
    }
    /// The model says which tensors an operator touches, so factors are checked against the tensor that has the most.
    [[nodiscard]] form_list read_forms(element const& e) const {
        if (e.size() > 4096) e.expected("at most 4096");
        form_list forms;
        e.for_each([&](element const& f) { forms.push_back(parse_form(f, widest_)); });
        return forms;
    }

    static local_work read_kernel(element const& from, char const* field) {
        auto const e = from.find(field);
        if (!e) return {};
        auto const launches = e->find("launches"), divided = e->find("divided"), beside = e->find("kernels_beside");
        return {flops(optional_number(*e, "flops")),
                bytes(optional_number(*e, "whole")),
                bytes(optional_number(*e, "split")),
                launches ? launches->boolean() : true,
                divided ? divided->boolean() : false,
                read_inside(*e, "whole"),
                read_inside(*e, "split"),
                read_holding(*e, "beside"),
                beside ? static_cast<int>(beside->integer(0, 1'000'000)) : 0,
                read_samples(*e)};
    }
    static holding read_holding(element const& from, char const* field) {
        auto const e = from.find(field);
        if (!e) return {};
        return {bytes(optional_number(*e, "whole")), bytes(optional_number(*e, "split")), read_inside(*e, "whole"),
                read_inside(*e, "split"), read_samples(*e)};
    }
    static samples_inside read_samples(element const& e) {
        auto const count = e.find("samples"), are_shared = e.find("shares_samples");
        return {count ? count->integer(1, std::numeric_limits<extent>::max()) : 0, are_shared && are_shared->boolean()};
    }
    /// Reads what a group cuts of `whole` or `split`, which is no more than that.
    static bytes read_inside(element const& e, std::string const& of) {
        auto const found = e.find((of + "_inside").c_str());
        if (!found) return {};
        double const value = found->non_negative();
        if (value > optional_number(e, of.c_str())) found->expected("at most '" + of + "', of which it is a part");
        return bytes(value);
    }
    static int optional_count(element const& from, char const* field, int otherwise) {
        auto const found = from.find(field);
        return found ? static_cast<int>(found->integer(1, 65536)) : otherwise;
    }
    static inside_list read_inside_list(element const& parent, char const* field) {
        inside_list result;
        if (auto const list = parent.find(field))
            list->for_each([&](element const& e) {
                result.push_back({e.at("step").choice(inside_steps), bytes(optional_number(e, "whole")),
                                  bytes(optional_number(e, "split")), optional_count(e, "members", 0),
                                  optional_count(e, "lines", 1)});
            });
        return result;
    }
    [[nodiscard]] transfer_list read_transfers(element const& parent, char const* field) const {
        transfer_list result;
        if (auto const list = parent.find(field))
            list->for_each([&](element const& e) { result.push_back(read_transfer(e)); });
        return result;
    }
    [[nodiscard]] transfer read_transfer(element const& e) const {
        transfer t{e.at("collective").choice(collectives), bytes(e.at("bytes").non_negative()), {}, {}, {}};
        if (auto const from = e.find("from")) t.from = read_share(*from);
        if (auto const to = e.find("to")) t.to = read_share(*to);
        if (auto const how = e.find("how")) {
            if (!has_grouped_kind(t.kind)) how->fail("is for gathers and scatters only");
            t.how = how->choice(unevens);
        }
        t.lines = optional_count(e, "lines", 1);
        auto const place = [&](share_ref s) {
            return plan_.tensors[s.tensor].factors[static_cast<std::size_t>(s.factor)];
        };
        t.redistributes = t.from.is_split() && t.to.is_split() && t.from.tensor == t.to.tensor &&
                          is_same_place(place(t.from), place(t.to));
        if (auto const before = e.find("before")) t.before = before->choice(inside_steps);
        if (auto const after = e.find("after")) t.after = after->choice(inside_steps);
        if (t.kind == collective::all_gather && !t.from.is_split())
            e.fail("lacks the field 'from', which says what each device sends");
        if (t.kind == collective::reduce_scatter && !t.to.is_split())
            e.fail("lacks the field 'to', which says what each device receives");
        return t;
    }

    /// Reads the instructions of the inner axes, which do the same as the outermost to one tensor or operator, or keep
    /// what another axis converts.
    std::vector<instruction> read_inside(element const& e, instruction const& outermost) const {
        std::vector<instruction> result;
        auto const* const compute = outermost.as<instruction::compute>();
        exactly(e, plan_.inner_sizes.size(), "one per inner axis").for_each([&](element const& of_axis) {
            auto const i = result.emplace_back(read_instruction(of_axis));
            auto const* const mine = i.as<instruction::compute>();
            if (compute ? !mine || mine->op != compute->op
                        : mine || i.change()->tensor != outermost.change()->tensor ||
                              i.is<instruction::read>() != outermost.is<instruction::read>())
                of_axis.fail("does something else than the outermost axis, expected the same operator or tensor");
        });
        return result;
    }

    instruction read_instruction(element const& e) const {
        auto const what = e.at("do").choice(actions);
        if (what == instruction::kind::compute) {
            if (plan_.operators.empty()) e.fail("computes an operator, but there is none");
            auto const op = e.at("operator").integer(0, static_cast<std::int64_t>(plan_.operators.size()) - 1);
            auto const loop = e.find("loop");
            return instruction::compute{
                static_cast<operator_id>(op), read_forms(e.at("operands")), read_forms(e.at("results")),
                static_cast<std::int16_t>(loop ? loop->integer(0, std::numeric_limits<std::int16_t>::max()) : -1)};
        }
        tensor_id const t = read_tensor(e.at("tensor"));
        tensor_form const to = read_form(e.at("to"), t);
        if (what == instruction::kind::read) {
            if (plan_.tensors[t].role == tensor_role::value)
                e.at("tensor").expected("an input, a parameter or a buffer");
            auto const state = e.find("from");
            if (!state) return instruction::read(t, to);
            tensor_form const from = read_form(*state, t);
            if (!from.is_shard() || !to.is_whole() || !plan_.tensors[t].trainable)
                state->expected("a shard, of a trained parameter that is read whole");
            return instruction::read(t, from, to);
        }
        tensor_form const from = read_form(e.at("from"), t);
        bool const is_kept = from == to && plan_.is_on_mesh() && what == instruction::kind::convert;
        if (!is_kept && !find_conversion(from, to))
            e.at("to").fail("cannot be made from " + to_string(from) + " in one step");
        if (what == instruction::kind::convert) return instruction::convert(t, from, to);
        if (plan_.tensors[t].role != tensor_role::parameter) e.at("tensor").expected("a parameter");
        bool const is_reshard = what == instruction::kind::reshard;
        if (!(is_reshard ? to : from).is_shard()) e.at(is_reshard ? "to" : "from").expected("a shard");
        if (!(is_reshard ? from : to).is_whole()) e.at(is_reshard ? "from" : "to").expected("replicated or mirrored");
        if (is_reshard) return instruction::reshard(t, from, to);
        auto const resharded = e.find("resharded");
        return instruction::unshard(t, from, to, resharded && resharded->boolean());
    }

    void read_steps() {
        auto const steps = root_.at("steps");
        steps.takes(steps.size() * sizeof(plan_.steps.front()));
        plan_.steps.reserve(steps.size());
        steps.for_each([&](element const& e) {
            auto& s = plan_.steps.emplace_back();
            s.instruction = read_instruction(e);
            if (plan_.is_on_mesh()) s.inside = read_inside(e.at("inside"), s.instruction);
            if (auto const category = e.find("class")) s.step.category = category->choice(operator_classes);
            if (auto const kind = e.find("kind")) s.step.kind = kind->text();
            s.step.type = e.at("dtype").choice(element_types);
            if (auto const share = e.find("share")) s.step.share = read_share(*share);
            s.step.forward = read_kernel(e, "forward");
            s.step.backward = read_kernel(e, "backward");
            s.step.forward_transfers = read_transfers(e, "forward_transfers");
            s.step.backward_transfers = read_transfers(e, "backward_transfers");
            s.step.deferred_transfers = read_transfers(e, "deferred_transfers");
            s.step.update_transfers = read_transfers(e, "update_transfers");
            s.step.deferred = read_kernel(e, "deferred");
            s.step.inside_forward = read_inside_list(e, "inside_forward");
            s.step.inside_backward = read_inside_list(e, "inside_backward");
            s.step.inside_update = read_inside_list(e, "inside_update");
            s.step.update = read_holding(e, "update");
            s.step.stored = read_holding(e, "stored");
            s.step.saved = read_holding(e, "saved");
            s.step.transient = bytes(optional_number(e, "transient"));
            if (auto const region = e.find("region")) s.step.region = read_region(*region);
            else if (is_one_region_) s.step.region = region_of_step(s.instruction);
            s.step.runs_again = plan_.provenance.training.runs_again(s.step.region);
            if (is_one_region_ && s.step.runs_again && !s.instruction.is<instruction::compute>()) {
                auto const also = [](auto const& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); };
                also(s.step.forward_transfers, s.step.backward_transfers);
                also(s.step.inside_forward, s.step.inside_backward);
            }
            if (plan_.provenance.training.interleaves()) {
                auto const* const change = s.instruction.change();
                s.step.waits = !change;
                s.step.once = change && plan_.tensors[change->tensor].role == tensor_role::parameter;
            }
            if (auto const saved = e.find("saved_tensors"))
                saved->for_each([&](element const& pair) {
                    std::size_t const axes = plan_.inner_sizes.size() + 1;
                    exactly(pair, 1 + axes, "a tensor and its form" + std::string(axes > 1 ? " on each axis" : ""));
                    tensor_id const t = read_tensor(pair.item(0));
                    product_form form;
                    for (std::size_t a = 0; a < axes; ++a) form.push_back(read_form(pair.item(1 + a), t));
                    s.saved.emplace_back(t, form);
                });
        });
    }

    /// Returns the region of a step, if all values are of one.
    [[nodiscard]] region_number region_of_step(instruction const& i) const {
        if (auto const* const convert = i.as<instruction::convert>()) return plan_.tensors[convert->tensor].region;
        return i.is<instruction::compute>() ? region_number{0} : no_region;
    }

    void check_outcome() const {
        element const cost = root_.at("cost"), status = root_.at("status");
        if (!plan_.exists()) {
            if (!cost.value().is_null()) cost.expected("null, since there are no steps");
            if (plan_.status == search::status::optimal || plan_.status == search::status::feasible)
                status.fail("promises a plan, but there are no steps");
            return;
        }
        if (plan_.status == search::status::infeasible)
            status.fail("promises that there is no plan, but there are steps");
        if (!near(cost.non_negative(), plan_.cost()))
            cost.expected("the sum of time, " + nlohmann::json(plan_.cost()).dump());
        if (plan_.lower_bound > plan_.cost() * (1 + 1e-6)) root_.at("lower_bound").expected("at most the cost");
    }

    element root_;
    plan plan_;
    /// The largest number of factors of one tensor.
    std::size_t widest_ = 0;
    std::size_t segment_count_ = 1;
    /// Tells whether the file may name regions that are made again, or is of a time when a stage was one.
    bool has_regions_ = false, has_cuts_inside_ = true, is_one_region_ = false;
    std::set<cut_factor> cut_;
};

} // namespace heddle::json::detail
