// SPDX-License-Identifier: BSL-1.0
// A plan in the words of PyTorch's DTensor: how tensors are placed, and what modules do to what they are given and
// make.
#include "exported_plan.hpp"

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/plan/parameter_uses.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle::cli {

namespace {

using ordered_json = nlohmann::ordered_json;

/// Tells whether a class cuts a factor of a tensor.
bool has_member(atom_class const& c, tensor_id t, factor_number f) {
    return algorithm::find(c.members, cut_factor{t, f}) != c.members.end();
}

/// How an axis cuts a dimension of a tensor, and what axes outside leave of it.
class cut_dimension {
public:
    cut_dimension(plan const& p, product_form const& f, tensor_id t, axis_number axis)
        : plan_(p), tensor_(p.tensors[t]), form_(f), t_(t), axis_(axis), dimension_(factor_on(axis).dimension) {
        for (axis_number a = 0; a < axis; ++a) has_others_ = has_others_ || cuts(a);
    }

    /// Returns how the axis has a shard, and what DTensor lacks: the rows of each device, and, if these are not one
    /// range, the rows that a step takes of each of the pieces which lie side by side in the dimension. Where axes
    /// outside cut the dimension too there is a list for each place on all of them.
    [[nodiscard]] ordered_json placement() const {
        std::vector<extent> all;
        for (auto const& f : tensor_.factors) all.push_back(f.extent);
        auto [parts, widths, has_pieces] = rows(0, all);
        ordered_json out{{"placement", "Shard(" + std::to_string(dimension_) + ")"}};
        if (has_pieces) out["widths"] = std::move(widths);
        out["parts"] = std::move(parts);
        return out;
    }

private:
    struct local_rows {
        ordered_json parts = ordered_json::array(), widths = ordered_json::array();
        bool has_pieces = false;
    };

    [[nodiscard]] std::size_t number_on(axis_number a) const { return static_cast<std::size_t>(form_[a].factor()); }
    [[nodiscard]] factor const& factor_on(axis_number a) const { return tensor_.factors[number_on(a)]; }
    [[nodiscard]] bool cuts(axis_number a) const { return form_[a].is_shard() && factor_on(a).dimension == dimension_; }
    /// Returns how much of its factor each place on an axis has, of what axes outside leave.
    [[nodiscard]] std::vector<extent> parts_on(axis_number a, extent left) const {
        auto const c =
            algorithm::find_if(plan_.cuts, [&](atom_class const& of) { return has_member(of, t_, form_[a].factor()); });
        if (c == plan_.cuts.end()) return {};
        extent const atom = factor_on(a).extent / c->atoms;
        auto parts = c->parts(a, left / atom);
        for (auto& n : parts) n *= atom;
        return parts;
    }
    /// Returns the rows where axes outside `a` left so much of each factor.
    [[nodiscard]] local_rows rows(axis_number a, std::vector<extent> const& left) const {
        if (a == axis_ || !has_others_) return rows_along(left);
        local_rows result;
        auto const add = [&](std::vector<extent> const& here) {
            auto of_place = rows(a + 1, here);
            result.parts.push_back(std::move(of_place.parts));
            result.widths.push_back(std::move(of_place.widths));
            result.has_pieces = result.has_pieces || of_place.has_pieces;
        };
        if (!cuts(a)) {
            for (std::size_t place = 0; place < plan_.mesh().size(a); ++place) add(left);
            return result;
        }
        for (extent const part : parts_on(a, left[number_on(a)])) {
            auto here = left;
            here[number_on(a)] = part;
            add(here);
        }
        return result;
    }
    [[nodiscard]] local_rows rows_along(std::vector<extent> const& left) const {
        auto const& cut = factor_on(axis_);
        extent const size = tensor_.shape[static_cast<std::size_t>(dimension_)];
        extent rows = size / cut.extent, stride = cut.stride; // of a step
        std::set<std::size_t> others; // factors of the dimension that axes outside cut, which do not overlap
        for (axis_number a = 0; a < axis_; ++a)
            if (cuts(a) && number_on(a) != number_on(axis_)) others.insert(number_on(a));
        for (auto const k : others) {
            auto const& f = tensor_.factors[k];
            rows = rows / f.extent * left[k];
            if (f.stride < cut.stride) stride = stride / f.extent * left[k];
        }
        local_rows result;
        for (extent const part : parts_on(axis_, left[number_on(axis_)])) result.parts.push_back(part * rows);
        if (!cut.widths.empty())
            for (auto width : cut.widths) result.widths.push_back(width); // such a factor is all of the dimension
        else result.widths = std::vector<extent>(static_cast<std::size_t>(stride > 0 ? rows / stride : 0), stride);
        result.has_pieces = result.widths.size() > 1;
        return result;
    }

    plan const& plan_;
    plan_tensor const& tensor_;
    product_form const& form_;
    tensor_id t_;
    axis_number axis_;
    int dimension_;
    bool has_others_ = false;
};

/// Returns a form as placements, by axis. Copies whose gradients are summands of the whole one say so if
/// `has_gradient`.
ordered_json placements(plan const& p, product_form const& f, tensor_id t, bool has_gradient) {
    ordered_json out = ordered_json::array();
    for (std::size_t axis = 0; axis < f.size(); ++axis) {
        auto const form = f[static_cast<axis_number>(axis)];
        if (form.is_shard()) out.push_back(cut_dimension(p, f, t, static_cast<axis_number>(axis)).placement());
        else if (form == tensor_form::partial()) out.push_back("Partial()");
        else if (form == tensor_form::mirrored() || !has_gradient) out.push_back("Replicate()");
        else out.push_back({{"placement", "Replicate()"}, {"gradient", "Partial()"}});
    }
    return out;
}

/// Returns the module that has a parameter, by its name.
std::string owner_of(std::string const& parameter) {
    auto const dot = parameter.rfind('.');
    return dot == parameter.npos ? "" : parameter.substr(0, dot);
}

/// Tells whether an operator compares scores with labels, its first operands.
bool has_labels(std::string const& kind) { return kind == "cross_entropy" || kind.starts_with("nll"); }

/// Cuts what has no derivative, such as labels, wherever an operator uses a part of it alone: operators of a plan take
/// their parts of the whole, where code is given them.
class cut_where_used {
public:
    cut_where_used(plan const& p, program const& model, indexed_program const& program)
        : plan_(p), model_(model), program_(program) {
        for (std::size_t i = plan_.steps.size(); i-- > 0;)
            for (axis_number a = 0; a < plan_.steps[i].axis_count(); ++a) visit(instruction_of(plan_.steps[i], a), a);
    }
    [[nodiscard]] plan const& result() const { return plan_; }

private:
    [[nodiscard]] static instruction& instruction_of(plan_step& s, axis_number a) {
        return a == 0 ? s.instruction : s.inside[a - 1];
    }
    [[nodiscard]] bool is_of_data(tensor_id t) const {
        return !program_.tensors[t].has_cotangent && !program_.tensors[t].is_parameter();
    }

    void visit(instruction& i, axis_number a) {
        if (auto* read = i.as<instruction::read>()) {
            if (program_.tensors[read->tensor].info.role != tensor_role::input) return;
            if (auto const wanted = wanted_.find({read->tensor, a}); wanted != wanted_.end() && read->to.is_whole())
                read->from = read->to = wanted->second;
        } else if (auto* compute = i.as<instruction::compute>()) visit(*compute, a);
    }

    void visit(instruction::compute& i, axis_number a) {
        auto const& op = program_.operators[i.op];
        if (i.loop < 0) i.loop = wanted_loop(op, i, a);
        if (i.loop >= 0) {
            auto loop = op.loops[static_cast<std::size_t>(i.loop)];
            if (has_labels(model_.kind(i.op))) loop.operands[1] = labels_of(op, loop);
            if (auto* const as_cut = class_of(op, loop)) {
                for (std::size_t k = 0; k < op.operands.size(); ++k)
                    cut(op.operands[k], i.operands[k], loop.operands[k], *as_cut);
                for (std::size_t k = 0; k < op.results.size(); ++k)
                    cut(op.results[k], i.results[k], loop.results[k], *as_cut);
            }
        }
        for (std::size_t k = 0; k < op.operands.size(); ++k)
            if (is_of_data(op.operands[k])) wanted_.try_emplace({op.operands[k], a}, i.operands[k]);
    }

    /// Returns the factor of labels that goes with the scores' rows. The rule of an operator that takes a mean has
    /// labels whole, as some may not count.
    [[nodiscard]] factor_number labels_of(indexed_operator const& op, split_loop const& loop) const {
        auto const &scores = program_.tensors[op.operands[0]], &labels = program_.tensors[op.operands[1]];
        std::size_t const rank = scores.info.shape.size(), classes = rank > 1 ? 1 : 0;
        if (loop.operands[0] == no_factor || labels.info.shape.size() + 1 != rank) return loop.operands[1];
        auto rows = scores.factors[static_cast<std::size_t>(loop.operands[0])];
        if (rows.dimension == classes) return no_factor;
        if (rows.dimension > classes) --rows.dimension;
        auto const found = algorithm::find(labels.factors, rows);
        return found == labels.factors.end() ? no_factor : static_cast<factor_number>(found - labels.factors.begin());
    }

    /// Returns the loop that cuts a result as it is wanted, which an operator with derivatives does by itself, or -1.
    [[nodiscard]] std::int16_t wanted_loop(indexed_operator const& op, instruction::compute const& i,
                                           axis_number a) const {
        for (std::size_t k = 0; k < op.results.size(); ++k) {
            auto const wanted = wanted_.find({op.results[k], a});
            if (!is_of_data(op.results[k]) || wanted == wanted_.end() || !wanted->second.is_shard()) continue;
            auto const found = algorithm::find_if(op.loops, [&](split_loop const& loop) {
                return i.results[k].is_whole() && loop.results[k] == wanted->second.factor();
            });
            if (found != op.loops.end()) return static_cast<std::int16_t>(found - op.loops.begin());
        }
        return -1;
    }

    /// Returns how the plan divides a loop; null if it does not.
    [[nodiscard]] atom_class* class_of(indexed_operator const& op, split_loop const& loop) {
        auto const has = [&](std::vector<tensor_id> const& tensors, std::vector<factor_number> const& factors,
                             atom_class const& c) {
            for (std::size_t k = 0; k < tensors.size(); ++k)
                if (factors[k] != no_factor && has_member(c, tensors[k], factors[k])) return true;
            return false;
        };
        auto const found = algorithm::find_if(plan_.cuts, [&](atom_class const& c) {
            return has(op.operands, loop.operands, c) || has(op.results, loop.results, c);
        });
        return found == plan_.cuts.end() ? nullptr : &*found;
    }
    void cut(tensor_id t, tensor_form& form, factor_number f, atom_class& c) const {
        if (f == no_factor || !form.is_whole() || !is_of_data(t)) return;
        if (program_.tensors[t].factors[static_cast<std::size_t>(f)].extent % c.atoms != 0) return;
        form = tensor_form::shard(f);
        if (!has_member(c, t, f)) c.members.push_back({t, f});
    }

    plan plan_;
    program const& model_;
    indexed_program const& program_;
    std::map<std::pair<tensor_id, axis_number>, tensor_form> wanted_;
};

/// What modules have to do to their inputs and results, so that all between them is computed on each device as it is
/// written. A module is one operator with the parameters of one owner.
class module_boundaries {
public:
    module_boundaries(plan const& p, program const& model)
        : model_(model), program_(index_for(model, p)), plan_(cut_where_used(p, model, program_).result()) {
        if (p.has_groups()) cannot("a machine is one device, with data parallelism inside");
        for (auto const& s : plan_.steps) {
            if (s.instruction.is<instruction::compute>()) note_computation(s);
            else if (s.instruction.is<instruction::read>()) made_.try_emplace(s.acting().change()->tensor, s.to());
        }
        for (auto const& [t, uses] : uses_) choose(t, uses);
        for (auto const& s : plan_.steps)
            if (s.instruction.is<instruction::compute>()) add_module(s);
    }

    /// Returns the plan with inputs cut where code uses them in parts.
    [[nodiscard]] plan const& planned() const { return plan_; }

    /// Adds the modules that change tensors or have parameters in parts, the form in which the loss is made, and why
    /// that is not all of the plan, to a stage.
    void add_to(ordered_json& stage) const {
        ordered_json changing = ordered_json::object();
        for (auto const& [name, row] : modules_)
            if (row.changes || row.has_parts) changing[name] = row.text;
        stage["modules"] = std::move(changing);
        stage["loss"] = said(made_.at(program_.loss), program_.loss);
        if (obstacle_) stage["obstacle"] = *obstacle_;
    }

    /// Returns the form in which operators have a parameter.
    [[nodiscard]] std::optional<product_form> used(tensor_id parameter) const {
        auto const found = uses_.find(parameter);
        if (found == uses_.end()) return {};
        return found->second.front().form;
    }

private:
    struct use {
        product_form form;
        std::string module;
    };
    struct module_row {
        ordered_json text;
        bool changes = false, has_parts = false;
    };

    /// Notes what modules cannot do, unless something else is known that they cannot.
    void cannot(std::string why) {
        if (!obstacle_) obstacle_ = std::move(why);
    }

    [[nodiscard]] ordered_json said(product_form const& f, tensor_id t) const {
        return placements(plan_, f, t, program_.tensors[t].has_cotangent);
    }

    /// Tells whether code that has a tensor in one form can go on with the other.
    [[nodiscard]] bool is_same(product_form const& f, product_form const& g, tensor_id t) const {
        return f == g || (!program_.tensors[t].has_cotangent && has_same_parts(f, g));
    }

    /// Returns the module whose one operator this is; empty if none is known.
    [[nodiscard]] std::string module_of(indexed_operator const& op) const {
        std::string owner;
        for (tensor_id t : op.operands) {
            if (!program_.tensors[t].is_parameter()) continue;
            auto const of_this = owner_of(program_.tensors[t].info.name);
            if (!owner.empty() && owner != of_this) return "";
            owner = of_this;
        }
        return owner;
    }

    void note_computation(plan_step const& s) {
        auto const& op = program_.operators[s.computation().op];
        auto const module = module_of(op);
        for (std::size_t k = 0; k < op.operands.size(); ++k)
            uses_[op.operands[k]].push_back(
                {s.operand(k), program_.tensors[op.operands[k]].is_parameter() ? "" : module});
        for (std::size_t k = 0; k < op.results.size(); ++k) made_.insert_or_assign(op.results[k], s.result(k));
        if (sends_rows(s)) cannot("'" + op.name + "' sends rows to the devices that hold what they need");
        for (axis_number a = 0; a < s.axis_count(); ++a) note_loop(s.computation(a), op, module);
    }

    /// Notes where a device that runs an operator on its part alone would compute another thing.
    void note_loop(instruction::compute const& i, indexed_operator const& op, std::string const& module) {
        if (i.loop < 0) return;
        auto const& loop = op.loops[static_cast<std::size_t>(i.loop)];
        auto const named = "'" + op.name + "'";
        if (gathers_factors(i)) return cannot(named + " has gradients made of gathered factors");
        if (loop.forward_statistics + loop.backward_statistics > 0)
            return cannot(named + " is cut along what its statistics are of");
        if (algorithm::none_of(loop.operands, [](factor_number f) { return f != no_factor; }))
            return cannot(named + " makes parts of what it has whole");
        if (has_labels(model_.kind(i.op)) && i.operands[0].is_shard() && !i.operands[1].is_shard())
            return cannot(named + " has labels that are not cut as its scores are");
        auto const category = op.work.category;
        bool const is_product = category == operator_class::matmul || category == operator_class::convolution;
        bool const takes_summands = algorithm::find(i.operands, tensor_form::partial()) != i.operands.end();
        for (std::size_t k = 0; k < op.results.size(); ++k) {
            auto const& result = program_.tensors[op.results[k]];
            if (i.results[k] == tensor_form::partial() && !is_product && !takes_summands && module.empty() &&
                result.has_cotangent && !result.info.shape.empty())
                return cannot(named + " reduces what is cut");
            if (!i.results[k].is_shard() || !depends_on_place(model_.kind(i.op))) continue;
            auto const dimension = result.factors[static_cast<std::size_t>(i.results[k].factor())].dimension;
            if (dimension + std::size_t{2} >= result.info.shape.size())
                return cannot(named + " depends on where in a matrix its part is");
        }
    }

    /// Tells whether an operator does something else in each row or column of matrices.
    [[nodiscard]] static bool depends_on_place(std::string const& kind) {
        return algorithm::any_of(std::vector<std::string>{"tril", "triu", "attention"},
                                 [&](auto const& word) { return kind.find(word) != kind.npos; });
    }

    /// Chooses the form in which code between modules has a tensor: it is as it was made, unless a module makes it and
    /// all others want it otherwise.
    void choose(tensor_id t, std::vector<use> const& uses) {
        auto const& tensor = program_.tensors[t];
        auto const differs = [&](product_form const& f) {
            return [&, f](use const& u) { return !is_same(u.form, f, t); };
        };
        if (tensor.is_parameter()) {
            if (algorithm::any_of(uses, differs(uses.front().form)))
                cannot("parameter '" + tensor.info.name + "' is used in several forms");
            return;
        }
        auto const& made = made_.at(t);
        if (tensor.info.role == tensor_role::buffer &&
            algorithm::any_of(made, [](tensor_form f) { return f.is_shard(); }))
            return cannot("buffer '" + tensor.info.name + "' is cut");
        auto const in_code = algorithm::find_if(uses, [](use const& u) { return u.module.empty(); });
        bool const is_of_module = is_made_by_module(t);
        auto const form = !is_of_module ? made : in_code != uses.end() ? in_code->form : uses.front().form;
        auto const alike = algorithm::none_of(uses, differs(form));
        auto const given = is_of_module && in_code == uses.end() && !alike ? made : form;
        for (auto const& u : uses)
            if (u.module.empty() && !is_same(u.form, given, t))
                return cannot("'" + tensor.info.name + "' changes from " + to_string(given) + " to " +
                              to_string(u.form) + " where no module ends or begins");
        given_.emplace(t, given);
    }

    [[nodiscard]] bool is_made_by_module(tensor_id t) const {
        return algorithm::any_of(plan_.steps, [&](plan_step const& s) {
            if (!s.instruction.is<instruction::compute>()) return false;
            auto const& op = program_.operators[s.computation().op];
            return algorithm::find(op.results, t) != op.results.end() && !module_of(op).empty();
        });
    }

    [[nodiscard]] product_form const& given(tensor_id t) const {
        auto const found = given_.find(t);
        return found == given_.end() ? made_.at(t) : found->second;
    }

    void add_module(plan_step const& s) {
        auto const& op = program_.operators[s.computation().op];
        auto const name = module_of(op);
        if (name.empty()) return;
        module_row row{{{"inputs", ordered_json::array()}, {"outputs", ordered_json::array()}}};
        auto const add = [&](char const* side, char const* before, product_form const& from, char const* after,
                             product_form const& to, tensor_id t) {
            row.text[side].push_back({{before, said(from, t)}, {after, said(to, t)}});
            row.changes = row.changes || !is_same(from, to, t);
        };
        for (std::size_t k = 0; k < op.operands.size(); ++k) {
            tensor_id const t = op.operands[k];
            if (!program_.tensors[t].is_parameter()) add("inputs", "given", given(t), "used", s.operand(k), t);
            else if (algorithm::any_of(s.operand(k), [](tensor_form f) { return !f.is_whole(); })) row.has_parts = true;
        }
        for (std::size_t k = 0; k < op.results.size(); ++k)
            add("outputs", "made", s.result(k), "given", given(op.results[k]), op.results[k]);
        auto const [known, is_new] = modules_.try_emplace(name, row);
        if (!is_new && (row.changes || known->second.changes) && known->second.text != row.text)
            cannot("module '" + name + "' runs several times, or is several operators, in different forms");
    }

    program const& model_;
    indexed_program program_;
    plan plan_;
    std::map<tensor_id, product_form> made_, given_;
    std::map<tensor_id, std::vector<use>> uses_;
    std::map<std::string, module_row> modules_;
    std::optional<std::string> obstacle_;
};

ordered_json parameter_row(plan const& p, parameter_use const& use, product_form const& used) {
    ordered_json row{{"stored", placements(p, use.stored, use.tensor, false)}};
    auto text = placements(p, used, use.tensor, p.tensors[use.tensor].trainable);
    if (text != row["stored"]) row["used"] = std::move(text);
    if (algorithm::find(use.storage, parameter_holding::gathered_twice) != use.storage.end()) row["gathered"] = "twice";
    return row;
}

} // namespace

ordered_json placements_of(exported_plan const& whole, program const* model) {
    ordered_json out{{"micro_batches", whole.micro_batches}};
    if (auto const& nearest = whole.nearest; nearest && std::isfinite(nearest->cost))
        out["nearest"] = {{"name", nearest->name}, {"more", nearest->cost / whole.cost - 1}};
    for (auto const* p : whole.stages) {
        std::optional<module_boundaries> boundaries;
        if (model) {
            boundaries.emplace(*p, *model);
            p = &boundaries->planned();
        }
        ordered_json stage{{"mesh", p->mesh().sizes()}, {"inputs", ordered_json::object()}};
        for (auto const& step : p->steps) {
            if (!step.instruction.is<instruction::read>()) continue;
            tensor_id const t = step.acting().change()->tensor;
            if (auto const& tensor = p->tensors[t];
                tensor.role == tensor_role::input && (tensor.whole_of.empty() || tensor.whole_of == tensor.name))
                stage["inputs"][tensor.name] = placements(*p, step.to(), t, false);
        }
        stage["parameters"] = ordered_json::object();
        for (auto const& use : parameter_uses(*p)) {
            auto const seen = boundaries ? boundaries->used(use.tensor) : std::nullopt;
            stage["parameters"][p->tensors[use.tensor].name] = parameter_row(*p, use, seen.value_or(use.used));
        }
        if (boundaries) boundaries->add_to(stage);
        if (whole.rounds > 1) stage["place"] = out["stages"].size() % (whole.stages.size() / whole.rounds);
        out["stages"].push_back(std::move(stage));
    }
    return out;
}

} // namespace heddle::cli
