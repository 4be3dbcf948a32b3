// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans as JSON.
#pragma once

#include <heddle/json/detail/plan_names.hpp>
#include <heddle/json/detail/provenance.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/write_options.hpp>
#include <heddle/plan/plan.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::json {

namespace detail {

class plan_writer {
public:
    using value = nlohmann::ordered_json;

    explicit plan_writer(plan const& p, write_options const& options = {}) : plan_(p), options_(options) {}

    /// Returns what the command line prints.
    [[nodiscard]] value summary() const {
        value result = value::object();
        result["status"] = name_of(statuses, plan_.status);
        if (plan_.status == search::status::limit) result["which_limit"] = search::name(plan_.which_limit);
        if (plan_.status == search::status::infeasible || !plan_.reason.empty()) result["reason"] = plan_.reason;
        result["cost"] = plan_.exists() ? number(plan_.cost()) : value();
        result["lower_bound"] = number(plan_.lower_bound);
        if (!plan_.space.empty()) result["space"] = plan_.space;
        if (plan_.global_lower_bound) result["global_lower_bound"] = number(*plan_.global_lower_bound);
        auto const& s = plan_.statistics;
        for (auto const& [name, count] : {std::pair("expanded", s.expanded),
                                          {"generated", s.generated},
                                          {"dominated", s.dominated},
                                          {"bounded", s.bounded},
                                          {"kept", s.kept},
                                          {"compared", s.compared}})
            result[name] = count;
        if (options_.times) result["seconds"] = number(s.seconds);
        result["warnings"] = plan_.warnings;
        result["baselines"] = costs(plan_.baselines);
        if (!plan_.other_baselines.empty()) result["other_baselines"] = costs(plan_.other_baselines);
        result["memory_bytes"] = list(plan_.memory, [](memory_terms const& m) { return number(m.total()); });
        result["memory_limit_bytes"] =
            list(plan_.devices, [](plan_device const& d) { return number(d.memory_limit.value); });
        auto const& from = plan_.provenance;
        auto& origin = result["provenance"] = provenance_to_json(from);
        origin["optimizer_bytes_per_element"] = number(from.training.optimizer_bytes_per_element);
        origin["overlaps_gradients"] = from.training.overlaps_gradients;
        if (auto const& own = from.training.accumulator.name; !own.empty()) origin["accumulator"] = own;
        if (from.training.copies_gradients) origin["copies_gradients"] = true;
        if (from.training.bucket > bytes(0)) origin["bucket_bytes"] = number(from.training.bucket.value);
        if (from.training.accumulated > 1) origin["accumulated"] = from.training.accumulated;
        if (from.training.in_flight > 1) origin["in_flight"] = from.training.in_flight;
        if (auto const how = from.training.recomputes; how != recomputation::none)
            origin["recomputes"] = name_of(recomputations, how);
        result["time"] = {{"compute", number(plan_.time.compute)},
                          {"forward_communication", number(plan_.time.forward_communication)},
                          {"backward_communication", number(plan_.time.backward_communication)},
                          {"gradient_communication", number(plan_.time.gradient_communication)},
                          {"update", number(plan_.time.update)}};
        if (plan_.time.parameter_communication != 0)
            result["time"]["parameter_communication"] = number(plan_.time.parameter_communication);
        for (auto const& [name, inside] : {std::pair{"compute_inside", plan_.time.compute_inside},
                                           std::pair{"update_inside", plan_.time.update_inside}})
            if (inside != 0) result["time"][name] = number(inside);
        result["devices"] = list(plan_.devices, [](plan_device const& d) { return value(d.type); });
        if (plan_.is_on_mesh()) result["mesh"] = plan_.mesh().sizes();
        if (plan_.has_groups())
            result["group_sizes"] = list(plan_.devices, [](plan_device const& d) { return value(d.group_size); });
        result["ratios"] = ratios(plan_.ratios);
        if (plan_.is_on_mesh()) result["inner_ratios"] = list(plan_.inner_ratios, ratios);
        if (!plan_.segments.empty()) result["segments"] = plan_.segments;
        if (from.training.interleaves())
            result["schedule"] = {{"kind", "duplex"},
                                  {"micro_batches", from.training.micro_batches},
                                  {"turn", number(from.training.turn.value)},
                                  {"stages", plan_.stages}};
        return result;
    }

    [[nodiscard]] std::string text() const {
        std::string out = "{\n  \"format\": \"heddle.plan\",\n  \"version\": " + std::to_string(version_of(plan_));
        value const fields = summary();
        for (auto const& [key, field] : fields.items()) out += ",\n  \"" + key + "\": " + dump(field);
        lines(out, "memory", list(plan_.memory, write_memory));
        lines(out, "trajectory", list(plan_.trajectory, write_point));
        lines(out, "cuts", list(plan_.cuts, write_cut));
        lines(out, "tensors", list(plan_.tensors, write_tensor));
        lines(out, "operators", value(plan_.operators));
        lines(out, "steps", list(plan_.steps, write_step));
        return out + "\n}\n";
    }

    /// Returns the first version whose readers understand all of a plan.
    [[nodiscard]] static int version_of(plan const& p) {
        if (algorithm::any_of(p.steps, [](plan_step const& s) { return is_cut_inside(s.step); })) return 5;
        if (p.provenance.training.recomputes != recomputation::none) return 3;
        return p.is_on_mesh() ? 2 : 1;
    }

    static std::string dump(value const& v) { return v.dump(-1, ' ', false, value::error_handler_t::replace); }

private:
    template <class Range, class Write>
    static value list(Range const& range, Write&& write) {
        value result = value::array();
        for (auto const& item : range) result.push_back(write(item));
        return result;
    }

    /// Whole numbers are written without a point if that loses nothing.
    static value number(double v) {
        if (!std::isfinite(v)) throw input_error("plan", "has a number that is not finite, which no file can hold");
        bool const whole = std::abs(v) < 9007199254740992.0 && v == std::trunc(v) && !(v == 0 && std::signbit(v));
        return whole ? value(static_cast<std::int64_t>(v)) : value(v);
    }
    /// Writes the ratios of one segment as one list.
    static value ratios(ratio_table const& table) {
        auto const row = [](std::vector<double> const& r) { return list(r, number); };
        return table.size() == 1 ? row(table[0]) : list(table, row);
    }
    static value optional(std::optional<double> v) { return v ? number(*v) : value(); }
    static value costs(strategy_costs const& of) {
        value result = value::object();
        for (auto const& [name, cost] : of) result[name] = optional(cost);
        return result;
    }
    static bool is_default(double v) { return v == 0 && !std::signbit(v); }

    /// Writes one item per line.
    static void lines(std::string& out, std::string_view key, value const& items) {
        out += ",\n  \"" + std::string(key) + "\": [";
        for (std::size_t i = 0; i < items.size(); ++i) out += (i ? ",\n    " : "\n    ") + dump(items[i]);
        out += items.empty() ? "]" : "\n  ]";
    }

    static value write_memory(memory_terms const& m) {
        return {{"parameters", number(m.parameters)},   {"gradients", number(m.gradients)},
                {"optimizer", number(m.optimizer)},     {"inputs", number(m.inputs)},
                {"activations", number(m.activations)}, {"communication", number(m.communication)}};
    }
    static value write_point(trajectory_point const& t) {
        return {{"origin", t.origin}, {"cost", optional(t.cost)}, {"ratios", ratios(t.ratios)}};
    }
    static value write_cut(atom_class const& c) {
        value result{{"atoms", c.atoms}, {"counts", c.counts}};
        auto const of_atoms = [](auto const& parts) { return value::array({parts.first, parts.second}); };
        if (!c.inside.empty())
            result["inside"] = list(c.inside, [&](auto const& of_axis) { return list(of_axis, of_atoms); });
        result["members"] = list(c.members, [](cut_factor m) { return value::array({m.tensor, m.factor}); });
        return result;
    }
    static value write_tensor(plan_tensor const& t) {
        value result{{"name", t.name},
                     {"shape", t.shape},
                     {"dtype", name_of(element_types, t.type)},
                     {"role", name_of(roles, t.role)}};
        if (t.trainable) result["trainable"] = true;
        if (!t.whole_of.empty()) result["whole_of"] = t.whole_of;
        result["factors"] = list(t.factors, [](factor const& f) {
            auto place = value::array({f.dimension, f.extent, f.widths.empty() ? value(f.stride) : value(f.widths)});
            if (f.segment != 0) place.push_back(f.segment);
            return place;
        });
        if (t.inside != no_factor) result["inside"] = t.inside;
        if (t.region != no_region) result["region"] = t.region;
        return result;
    }

    static value write_share(share_ref s) {
        auto result = value::array({s.tensor, s.factor});
        if (s.inside > 1) result.push_back(s.inside);
        return result;
    }
    static value write_forms(form_list const& forms) {
        return list(forms, [](tensor_form f) { return value(to_string(f)); });
    }

    static void add(value& into, samples_inside const& samples) {
        if (samples.count > 0) into["samples"] = samples.count;
        if (samples.are_shared) into["shares_samples"] = true;
    }
    static void add(value& into, char const* key, local_work const& k) {
        value result = value::object();
        if (!is_default(k.operations.value)) result["flops"] = number(k.operations.value);
        if (!is_default(k.whole.value)) result["whole"] = number(k.whole.value);
        if (!is_default(k.split.value)) result["split"] = number(k.split.value);
        if (!is_default(k.whole_inside.value)) result["whole_inside"] = number(k.whole_inside.value);
        if (!is_default(k.split_inside.value)) result["split_inside"] = number(k.split_inside.value);
        add(result, k.samples);
        if (k.is_divided) result["divided"] = true;
        if (k.kernels_beside > 0) {
            result["kernels_beside"] = k.kernels_beside;
            add(result, "beside", k.beside);
        }
        if (!k.launches && !result.empty()) result["launches"] = false;
        if (k.launches || !result.empty()) into[key] = std::move(result);
    }
    static void add(value& into, char const* key, holding const& h) {
        value result = value::object();
        if (!is_default(h.whole.value)) result["whole"] = number(h.whole.value);
        if (!is_default(h.split.value)) result["split"] = number(h.split.value);
        if (!is_default(h.whole_inside.value)) result["whole_inside"] = number(h.whole_inside.value);
        if (!is_default(h.split_inside.value)) result["split_inside"] = number(h.split_inside.value);
        add(result, h.samples);
        if (!result.empty()) into[key] = std::move(result);
    }
    static void add(value& into, char const* key, inside_list const& transfers) {
        for (auto const& t : transfers) {
            value result{{"step", name_of(inside_steps, t.kind)}};
            if (!is_default(t.whole.value)) result["whole"] = number(t.whole.value);
            if (!is_default(t.split.value)) result["split"] = number(t.split.value);
            if (t.members > 0) result["members"] = t.members;
            if (t.lines > 1) result["lines"] = t.lines;
            into[key].push_back(std::move(result));
        }
    }
    static void add(value& into, char const* key, transfer_list const& transfers) {
        for (auto const& t : transfers) {
            value result{{"collective", name_of(collectives, t.kind)}, {"bytes", number(t.size.value)}};
            if (t.from.is_split()) result["from"] = write_share(t.from);
            if (t.to.is_split()) result["to"] = write_share(t.to);
            if (t.how) result["how"] = name_of(unevens, *t.how);
            if (t.lines > 1) result["lines"] = t.lines;
            if (t.before != inside_step::none) result["before"] = name_of(inside_steps, t.before);
            if (t.after != inside_step::none) result["after"] = name_of(inside_steps, t.after);
            into[key].push_back(std::move(result));
        }
    }

    static value write_instruction(instruction const& i) {
        value result{{"do", name_of(actions, i.type())}};
        if (auto const* compute = i.as<instruction::compute>()) {
            result["operator"] = compute->op;
            result["operands"] = write_forms(compute->operands);
            result["results"] = write_forms(compute->results);
            if (compute->loop >= 0) result["loop"] = compute->loop;
        } else {
            auto const& [t, from, to] = *i.change();
            result["tensor"] = t;
            if (!i.is<instruction::read>() || from != to) result["from"] = to_string(from);
            result["to"] = to_string(to);
        }
        if (auto const* unshard = i.as<instruction::unshard>(); unshard && unshard->is_resharded)
            result["resharded"] = true;
        return result;
    }
    static value write_saved(kept_tensor const& kept) {
        auto result = value::array({kept.first});
        for (tensor_form f : kept.second) result.push_back(to_string(f));
        return result;
    }
    static value write_step(plan_step const& s) {
        value result = write_instruction(s.instruction);
        if (!s.inside.empty()) result["inside"] = list(s.inside, write_instruction);
        if (s.step.category != operator_class::other) result["class"] = name_of(operator_classes, s.step.category);
        if (!s.step.kind.empty()) result["kind"] = s.step.kind;
        result["dtype"] = name_of(element_types, s.step.type);
        if (s.step.share.is_split()) result["share"] = write_share(s.step.share);
        add(result, "forward", s.step.forward);
        add(result, "backward", s.step.backward);
        add(result, "forward_transfers", s.step.forward_transfers);
        add(result, "backward_transfers", s.step.backward_transfers);
        add(result, "deferred_transfers", s.step.deferred_transfers);
        add(result, "update_transfers", s.step.update_transfers);
        add(result, "deferred", s.step.deferred);
        add(result, "inside_forward", s.step.inside_forward);
        add(result, "inside_backward", s.step.inside_backward);
        add(result, "inside_update", s.step.inside_update);
        add(result, "update", s.step.update);
        add(result, "stored", s.step.stored);
        add(result, "saved", s.step.saved);
        if (s.step.region != no_region) result["region"] = s.step.region;
        if (!is_default(s.step.transient.value)) result["transient"] = number(s.step.transient.value);
        if (!s.saved.empty()) result["saved_tensors"] = list(s.saved, write_saved);
        return result;
    }

    plan const& plan_;
    write_options options_;
};

} // namespace detail

} // namespace heddle::json
